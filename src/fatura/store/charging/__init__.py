"""SQL of charges: issuance, polls, late look-ups, and the requests that wait until a charge is canceled."""
