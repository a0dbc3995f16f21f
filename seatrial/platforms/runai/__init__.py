"""RunAI: nodes as the pods of one workload, by the command runai."""
