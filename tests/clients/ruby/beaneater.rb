# Beaneater at work; the story is in the README one folder up.
require 'beaneater'
require 'timeout'

TUBE = ENV.fetch('TUBE')

def expect(found, wanted, what)
  raise "#{what}: found #{found.inspect}, wanted #{wanted.inspect}" unless found == wanted
end

def ok(step)
  puts "ok #{step}"
end

producer = Beaneater.new(ENV.fetch('PUT_ADDR'))
worker = Beaneater.new(ENV.fetch('ADDR'))
tube = producer.tubes.find(TUBE)
producer.tubes.use(TUBE)
worker.tubes.watch!(TUBE)

waiting = Thread.new { worker.tubes.reserve(20) }
waiting.report_on_exception = false
deadline = Time.now + 10
until (seen = tube.stats.current_waiting) == 1
  raise "no worker waits: last seen #{seen}" if Time.now > deadline

  sleep 0.02
end
id = tube.put('hello', pri: 7, ttr: 30)[:id]
job = Timeout.timeout(20) { waiting.value }
expect([job.id, job.body], [id, 'hello'], "the waiting worker's job")
ok 'waiting reserve'

job.touch
stats = job.stats
expect([stats.state, stats.pri, stats.ttr], ['reserved', 7, 30], 'the job')
ok 'touch, stats-job'

job.release(delay: 1)
expect(producer.jobs.find(id).stats.state, 'delayed', 'after the release')
job = worker.tubes.reserve(10)
expect(job.id, id, 'the job again')
ok 'release with delay'

job.bury
expect(tube.peek(:buried).id, id, 'the buried job')
expect(tube.kick(10)[:id].to_i, 1, 'jobs kicked')
job = worker.tubes.reserve(10)
expect(job.id, id, 'the kicked job')
ok 'bury, kick'

tube.pause(2)
second = tube.put('second')[:id]
begin
  worker.tubes.reserve(0)
  raise 'a job came out of a paused tube'
rescue Beaneater::TimedOutError
  # As it should be.
end
again = worker.tubes.reserve(10)
expect(again.id, second, 'the job after the pause')
ok 'pause'

expect(tube.stats.total_jobs, 2, 'jobs of the tube')
expect(producer.stats.current_jobs_reserved >= 2, true, "the server's reserved jobs")
ok 'stats'

job.delete
again.delete
begin
  job.delete
  raise 'deleted twice'
rescue Beaneater::NotFoundError
  # As it should be.
end
ok 'delete'
