"""The check `rdma`: perftest between nodes, on every rail alone and on all at once."""
