"""What a node's container is on every platform that runs containers: where its keys are, what root may do in it."""

KEYS = "/etc/seatrial"  # where the image's entry point looks for the run's keys
# What sshd as root needs to bind its port, confine itself, become the user who logs in and hand over a terminal, and
# what root needs for files of other owners, as on a shared volume.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")
