// Run by `pytest-fakecloud run`, whose server it keeps until its standard input ends: with the process
// that has started the server, however that ends.
"use strict"

const { PYTEST_FAKECLOUD_URL: url, PYTEST_FAKECLOUD_TOKEN: token } = process.env
process.stdout.write(`${JSON.stringify({ url, token })}\n`)
process.stdin.on("end", () => process.exit(0)).resume()
// A terminal sends Ctrl+C to this process, too; the tests may go on.
process.on("SIGINT", () => {})
