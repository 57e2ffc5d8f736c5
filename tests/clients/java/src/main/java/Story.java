import com.surftools.BeanstalkClient.Client;
import com.surftools.BeanstalkClient.Job;
import com.surftools.BeanstalkClientImpl.ClientImpl;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The Java client at work; the story is in the README one folder up. */
public final class Story {
    private static final String TUBE = System.getenv("TUBE");

    private static String host(String address) {
        return address.substring(0, address.lastIndexOf(':'));
    }

    private static int port(String address) {
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    private static Client connect(String address) {
        // One connection for all threads: the one that waits is the one that watches.
        Client client = new ClientImpl(host(address), port(address));
        client.setUniqueConnectionPerThread(false);
        return client;
    }

    private static void expect(Object found, Object wanted, String what) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(what + ": found " + found + ", wanted " + wanted);
        }
    }

    private static void ok(String step) {
        System.out.println("ok " + step);
    }

    /** This client has no pause, so the line goes over a socket of our own. */
    private static String say(String address, String line) throws Exception {
        try (Socket socket = new Socket(host(address), port(address))) {
            socket.setSoTimeout(10_000);
            socket.getOutputStream().write((line + "\r\n").getBytes("US-ASCII"));
            return new BufferedReader(new InputStreamReader(socket.getInputStream(), "US-ASCII")).readLine();
        }
    }

    private static void story() throws Exception {
        String producerAddress = System.getenv("PUT_ADDR");
        Client producer = connect(producerAddress);
        producer.useTube(TUBE);
        Client worker = connect(System.getenv("ADDR"));
        worker.watch(TUBE);
        worker.ignore("default");

        CompletableFuture<Job> waiting = CompletableFuture.supplyAsync(() -> worker.reserve(20));
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        Map<String, String> tube = producer.statsTube(TUBE);
        while (!"1".equals(tube.get("current-waiting"))) {
            if (System.nanoTime() > until) {
                throw new AssertionError("no worker waits: last seen " + tube);
            }
            if (waiting.isDone()) {
                throw new AssertionError("the worker does not wait: " + waiting.get());
            }
            Thread.sleep(20);
            tube = producer.statsTube(TUBE);
        }
        long id = producer.put(7, 0, 30, "hello".getBytes("US-ASCII"));
        Job job = waiting.get(20, TimeUnit.SECONDS);
        expect(job.getJobId(), id, "the waiting worker's job");
        expect(new String(job.getData(), "US-ASCII"), "hello", "its body");
        ok("waiting reserve");

        expect(worker.touch(id), true, "touch");
        Map<String, String> stats = worker.statsJob(id);
        expect(stats.get("state") + stats.get("pri") + stats.get("ttr"), "reserved730", "the job");
        ok("touch, stats-job");

        expect(worker.release(id, 7, 1), true, "release");
        expect(producer.statsJob(id).get("state"), "delayed", "after the release");
        expect(worker.reserve(10).getJobId(), id, "the job again");
        ok("release with delay");

        expect(worker.bury(id, 7), true, "bury");
        expect(producer.peekBuried().getJobId(), id, "the buried job");
        expect(producer.kick(10), 1, "jobs kicked");
        expect(worker.reserve(10).getJobId(), id, "the kicked job");
        ok("bury, kick");

        expect(say(producerAddress, "pause-tube " + TUBE + " 2"), "PAUSED", "pause");
        long second = producer.put(7, 0, 30, "second".getBytes("US-ASCII"));
        expect(worker.reserve(0), null, "a paused tube gives nothing");
        expect(worker.reserve(10).getJobId(), second, "the job after the pause");
        ok("pause");

        expect(producer.statsTube(TUBE).get("total-jobs"), "2", "jobs of the tube");
        expect(producer.stats().containsKey("current-jobs-ready"), true, "the server's statistics");
        ok("stats");

        expect(worker.delete(id), true, "delete");
        expect(worker.delete(second), true, "delete");
        expect(worker.delete(id), false, "a second delete");
        ok("delete");
    }

    public static void main(String[] args) throws Exception {
        try {
            story();
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }
}
