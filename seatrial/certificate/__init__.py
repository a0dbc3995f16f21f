"""The acceptance certificate of a cluster: requirements checked by runs, with the evidence of each,
signed.
"""

CERTIFICATE = "certificate.json"
PAGE = "certificate.html"
PAPER = "certificate.pdf"
REQUIREMENTS = "requirements.yaml"
EVIDENCE = "evidence"  # the folder of the runs: evidence/1/run.json
