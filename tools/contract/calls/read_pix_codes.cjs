// Read Pix codes with pix-utils. The argument is a JSON file with a list of codes.
// Prints a list with what each code says, or with null for a code that pix-utils refuses.
const { readFileSync } = require("node:fs");
const { hasError, parsePix } = require("pix-utils");

const codes = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const read = (code) => {
  const found = parsePix(code);
  return hasError(found) ? null : { ...found, transactionAmount: found.transactionAmount?.toFixed(2) };
};
console.log(JSON.stringify(codes.map(read)));
