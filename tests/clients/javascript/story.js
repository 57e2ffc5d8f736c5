// What the JavaScript programs share: where to connect, and how to say that a step went well.
const assert = require('node:assert')

const address = (text) => {
  const colon = text.lastIndexOf(':')
  return { host: text.slice(0, colon), port: Number(text.slice(colon + 1)) }
}

const ok = (step) => console.log(`ok ${step}`)

// Looks until it sees what it wants; says at the end what it saw last.
const poll = async (look, wanted, what) => {
  const until = Date.now() + 10_000
  for (;;) {
    const found = await look()
    if (found === wanted) return
    assert(Date.now() < until, `${what}: still ${found}, wanted ${wanted}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const run = (story) =>
  story().then(
    () => process.exit(0),
    (error) => {
      console.error(error)
      process.exit(1)
    }
  )

module.exports = {
  assert,
  ok,
  poll,
  run,
  tube: process.env.TUBE,
  worker: address(process.env.ADDR),
  producer: address(process.env.PUT_ADDR)
}
