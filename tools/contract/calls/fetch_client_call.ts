// Calls the engine with openapi-generator's typescript-fetch client. Checks the types of one success and of one error.

import { Configuration, ProblemFromJSON, ProductsApi, ResponseError, type Problem, type Product } from "./index";

declare const process: { argv: string[] };

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function main(basePath: string, accessToken: string): Promise<void> {
  const products = new ProductsApi(new Configuration({ basePath, accessToken }));
  const created: Product = await products.createProduct({
    idempotencyKey: crypto.randomUUID(),
    productForm: { name: "Hosting", pricing: { mode: "fixed", monthlyPriceCents: 9990 } },
  });
  check(created.monthlyPriceCents === 9990, created);

  const missing: Problem | undefined = await products
    .readProduct({ productId: crypto.randomUUID() })
    .then(() => undefined)
    .catch(async (error: unknown) => {
      check(error instanceof ResponseError, error);
      return ProblemFromJSON(await error.response.json());
    });
  check(missing?.type === "engine.not_found", missing);
}

main(process.argv[2]!, process.argv[3]!);
