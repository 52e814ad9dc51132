"""SQL of charges: issuance, polls, late checks, and the requests that wait until a charge is canceled."""
