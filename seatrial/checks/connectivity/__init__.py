"""The check `connectivity`: does every node answer, reach every other, run MPI, and carry the same software and traffic?"""
