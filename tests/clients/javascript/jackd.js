const Jackd = require('jackd').default ?? require('jackd')
const story = require('./story')
const { assert, ok, poll, tube } = story

// jackd leaves YAML to its caller.
const value = (yaml, key) => yaml.match(new RegExp(`^${key}: "?([^"\n]*)`, 'm'))?.[1]

story.run(async () => {
  const producer = new Jackd()
  await producer.connect(story.producer)
  await producer.use(tube)
  const worker = new Jackd()
  await worker.connect(story.worker)
  await worker.watch(tube)
  await worker.ignore('default')

  const waiting = worker.reserve()
  await poll(async () => value(await producer.statsTube(tube), 'current-waiting'), '1', 'workers that wait')
  const id = await producer.put('hello', { priority: 7, ttr: 30 })
  let job = await waiting
  assert.deepStrictEqual([job.id, job.payload.toString()], [id, 'hello'])
  ok('waiting reserve')

  await worker.touch(id)
  const stats = await worker.statsJob(id)
  assert.deepStrictEqual(['state', 'pri', 'ttr'].map((key) => value(stats, key)), ['reserved', '7', '30'])
  ok('touch, stats-job')

  await worker.release(id, { delay: 1 })
  assert.strictEqual(value(await producer.statsJob(id), 'state'), 'delayed')
  job = await worker.reserveWithTimeout(10)
  assert.strictEqual(job.id, id)
  ok('release with delay')

  await worker.bury(id)
  assert.strictEqual((await producer.peekBuried()).id, id)
  assert.strictEqual(Number(await producer.kick(10)), 1)
  assert.strictEqual((await worker.reserveWithTimeout(10)).id, id)
  ok('bury, kick')

  // jackd 2.2.2 forgets the end of this line, so it is given with the delay.
  await producer.pauseTube(tube, { delay: '2\r\n' })
  const second = await producer.put('second')
  await assert.rejects(worker.reserveWithTimeout(0), /TIMED_OUT/)
  assert.strictEqual((await worker.reserveWithTimeout(10)).id, second)
  ok('pause')

  assert.strictEqual(value(await producer.statsTube(tube), 'total-jobs'), '2')
  assert(Number(value(await producer.stats(), 'current-jobs-reserved')) >= 2)
  ok('stats')

  await worker.delete(id)
  await worker.delete(second)
  await assert.rejects(worker.delete(id), /NOT_FOUND/)
  ok('delete')
})
