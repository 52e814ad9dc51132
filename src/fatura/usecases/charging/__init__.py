"""Create the charges of invoices at payment gateways, poll them, and cancel them; manage gateway connections.

Doors: `issuance`, `polling`, `late_charge_checks`, `cancellation`, `second_charges` and `gateway_connections`.
Read `issuance` first, then `gateway_calls`, `outcomes` and `late_charge_checks`.
"""

# The timeline of a lost answer, for a gateway that offers look-ups. T is the reservation, on the account's clock.
#   T              the invoice is leased for 60 s, the attempt is stored as `sending`, and the request is sent
#   T + 20 s       the call times out; the attempt stays `sending`, because its outcome is unknown
#   T + 25 s       first look-up; an empty one does not count before T + 80 s
#   T + 80 s       first empty look-up that counts
#   T + 140 s      second one: the attempt is believed `absent`, and is sent again under the same number
#   10 min to 24 h after that: late charge checks find a charge that appears later
# Any look-up that finds the charge issues the invoice with it. If a worker is killed, its lease expires and another
# worker goes on from the stored attempt.
# A gateway with idempotency keys or natural ids gets the same request again instead of a look-up.
# A gateway with neither cannot be asked: the attempt is parked for a person.
