"""The provider Mercado Pago (beta): cards, Pix and boletos on its hosted page (D-265)."""
