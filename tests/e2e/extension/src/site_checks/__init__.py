"""A check, a platform and a reader of a site, which seatrial finds by their entry points."""
