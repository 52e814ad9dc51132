"""The provider Asaas: cards on its hosted page, Pix and boletos (D-261)."""
