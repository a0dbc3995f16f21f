"""The sshd of a node where no image of ours starts it: its program, and the ports that nodes got."""
