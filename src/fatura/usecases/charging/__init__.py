"""Create the charges of invoices at payment gateways, and find out what happened to requests without an answer.

Entry points: `issuance`, and `late_charge_checks` as a part of the lane `reconciliation`. `reissue` also calls
`next_charge.check_count` and `retries.pace`.
Read `issuance` first, then `reservation`, `next_charge`, `gateway_calls`, `outcomes`, `found_charges`, `retries` and
`late_charge_checks`.
"""

# What happens when an answer is lost and the gateway offers look-ups. T is when the charge was reserved, on the
# account's clock.
#   T              the invoice is leased for 60 s, the charge is stored as `sending`, and the request is sent
#   T + 20 s       the call times out; the charge becomes `unknown`
#   T + 25 s       first look-up; an empty result is ignored, because the request may still be in transit
#   T + 80 s       first look-up whose empty result counts
#   T + 140 s      second empty look-up; the charge is marked `absent` and is due to be sent again under the same
#                  number, unless the invoice has to wait for another invoice of its subscription (D-57)
#   10 min to 24 h after `absent`: four late look-ups search for a charge that appears late
# When a look-up finds the charge, the invoice is issued with it. If a worker is killed, its lease expires and another
# worker continues from the stored charge.
# While the gateway deduplicates the request, by idempotency key or natural id, the engine repeats the request instead
# of looking the charge up. It looks the charge up only if the gateway refuses the repeat, or if the request must not or
# cannot be repeated: the connection is inactive, the gateway may have forgotten the key, charges were found already, or
# the stored request is lost. `reservation._ask_again` decides.
# If the gateway offers neither deduplication nor look-ups, it cannot say whether the charge exists: the charge is
# parked, and a person decides.
