const { Client } = require('node-beanstalk')
const story = require('./story')
const { assert, ok, poll, tube } = story

story.run(async () => {
  const producer = new Client(story.producer)
  await producer.connect()
  await producer.use(tube)
  const worker = new Client(story.worker)
  await worker.connect()
  await worker.watch(tube)
  await worker.ignore('default')

  const waiting = worker.reserve()
  await poll(async () => (await producer.statsTube(tube))?.['current-waiting'], 1, 'workers that wait')
  const { id } = await producer.put({ say: 'hello' }, 30, 7)
  const job = await waiting
  assert.deepStrictEqual([job.id, job.payload], [id, { say: 'hello' }])
  ok('waiting reserve')

  assert.strictEqual(await worker.touch(id), true)
  const stats = await worker.statsJob(id)
  assert.deepStrictEqual([stats.state, stats.pri, stats.ttr], ['reserved', 7, 30])
  ok('touch, stats-job')

  await worker.release(id, 7, 1)
  assert.strictEqual((await producer.statsJob(id)).state, 'delayed')
  assert.strictEqual((await worker.reserveWithTimeout(10)).id, id)
  ok('release with delay')

  assert.strictEqual(await worker.bury(id), true)
  assert.strictEqual((await producer.peekBuried()).id, id)
  assert.strictEqual(await producer.kick(10), 1)
  assert.strictEqual((await worker.reserveWithTimeout(10)).id, id)
  ok('bury, kick')

  await producer.pauseTube(tube, 2)
  const second = (await producer.put('second')).id
  assert.strictEqual(await worker.reserveWithTimeout(0), null)
  assert.strictEqual((await worker.reserveWithTimeout(10)).id, second)
  ok('pause')

  assert.strictEqual((await producer.statsTube(tube))['total-jobs'], 2)
  assert((await producer.stats())['current-jobs-reserved'] >= 2)
  ok('stats')

  assert.strictEqual(await worker.delete(id), true)
  assert.strictEqual(await worker.delete(second), true)
  assert.strictEqual(await worker.delete(id), false)
  ok('delete')
})
