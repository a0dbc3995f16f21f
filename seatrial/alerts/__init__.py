"""What people are told, when, and what they have been told already. Pure; sending is the tasks'."""
