-- Faults of the sandbox gateway meet the cancelling of charges too.

ALTER TABLE sandbox_fault DROP CONSTRAINT sandbox_fault_operation;
ALTER TABLE sandbox_fault ADD CONSTRAINT sandbox_fault_call CHECK (
    operation IN ('create_charge', 'get_charge', 'cancel_charge', 'list_charges', 'create_product')
);
