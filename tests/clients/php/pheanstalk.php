<?php
// Pheanstalk at work; the story is in the README one folder up.

declare(strict_types=1);

require_once 'Pheanstalk/autoload.php';

use Pheanstalk\Exception\ServerException;
use Pheanstalk\Pheanstalk;

function connect(string $address): Pheanstalk
{
    $colon = strrpos($address, ':');
    return Pheanstalk::create(substr($address, 0, $colon), (int) substr($address, $colon + 1), 5);
}

function expect($found, $wanted, string $what): void
{
    if ($found !== $wanted) {
        throw new Exception($what . ': found ' . var_export($found, true) . ', wanted ' . var_export($wanted, true));
    }
}

function ok(string $step): void
{
    echo "ok $step\n";
}

$tube = getenv('TUBE');
$producer = connect(getenv('PUT_ADDR'));
$producer->useTube($tube);

// PHP has no threads: a second process puts the first job when it sees the worker wait.
if (($argv[1] ?? '') === 'put-when-a-worker-waits') {
    $until = microtime(true) + 10;
    do {
        $waiting = (int) $producer->statsTube($tube)['current-waiting'];
        if ($waiting === 1) {
            $producer->put('hello', 7, 0, 30);
            exit(0);
        }
        usleep(20000);
    } while (microtime(true) < $until);
    fwrite(STDERR, "no worker waits: last seen $waiting\n");
    exit(1);
}

$worker = connect(getenv('ADDR'));
$worker->watchOnly($tube);

$other = proc_open([PHP_BINARY, __FILE__, 'put-when-a-worker-waits'], [], $pipes);
$job = $worker->reserveWithTimeout(20);
expect(proc_close($other), 0, 'the process that puts');
expect($job === null ? null : $job->getData(), 'hello', "the waiting worker's job");
$id = $job->getId();
ok('waiting reserve');

$worker->touch($job);
$stats = $worker->statsJob($job);
expect([$stats['state'], (int) $stats['pri'], (int) $stats['ttr']], ['reserved', 7, 30], 'the job');
ok('touch, stats-job');

$worker->release($job, 7, 1);
expect($producer->statsJob($job)['state'], 'delayed', 'after the release');
$job = $worker->reserveWithTimeout(10);
expect($job->getId(), $id, 'the job again');
ok('release with delay');

$worker->bury($job, 7);
expect($producer->peekBuried()->getId(), $id, 'the buried job');
expect($producer->kick(10), 1, 'jobs kicked');
$job = $worker->reserveWithTimeout(10);
expect($job->getId(), $id, 'the kicked job');
ok('bury, kick');

$producer->pauseTube($tube, 2);
$second = $producer->put('second');
expect($worker->reserveWithTimeout(0), null, 'a job out of a paused tube');
$again = $worker->reserveWithTimeout(10);
expect($again->getId(), $second->getId(), 'the job after the pause');
ok('pause');

expect((int) $producer->statsTube($tube)['total-jobs'], 2, 'jobs of the tube');
expect((int) $producer->stats()['current-jobs-reserved'] >= 2, true, "the server's reserved jobs");
ok('stats');

$worker->delete($job);
$worker->delete($again);
try {
    $worker->delete($job);
    throw new Exception('deleted twice');
} catch (ServerException $refused) {
    expect(strpos($refused->getMessage(), 'NOT_FOUND') !== false, true, $refused->getMessage());
}
ok('delete');
