// Calls the engine with openapi-fetch and the types that openapi-typescript generated. Checks the types of one success
// and of one error.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };

type Problem = components["schemas"]["Problem"];
type Product = components["schemas"]["Product"];

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function main(baseUrl: string, apiKey: string): Promise<void> {
  const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${apiKey}` } });
  const created = await client.POST("/v1/products", {
    params: { header: { "Idempotency-Key": crypto.randomUUID() } },
    body: { name: "Hosting", pricing: { mode: "fixed", monthlyPriceCents: 9990 } },
  });
  const product: Product | undefined = created.data;
  check(product?.monthlyPriceCents === 9990, created.error);

  const missing = await client.GET("/v1/products/{productId}", {
    params: { path: { productId: crypto.randomUUID() } },
  });
  const problem: Problem | undefined = missing.error;
  check(problem?.type === "engine.not_found", missing.data);
}

main(process.argv[2]!, process.argv[3]!);
