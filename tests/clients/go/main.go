// go-beanstalk at work; the story is in the README one folder up.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(found, wanted any, what string) {
	if found != wanted {
		fmt.Fprintf(os.Stderr, "%s: found %v, wanted %v\n", what, found, wanted)
		os.Exit(1)
	}
}

func dial(name string) *beanstalk.Conn {
	conn, err := beanstalk.DialTimeout("tcp", os.Getenv(name), 5*time.Second)
	check(err, "connect")
	return conn
}

type reserved struct {
	id   uint64
	body string
	err  error
}

func main() {
	name := os.Getenv("TUBE")
	producer, worker := dial("PUT_ADDR"), dial("ADDR")
	tube := beanstalk.NewTube(producer, name)
	watched := beanstalk.NewTubeSet(worker, name)
	reserve := func(timeout time.Duration) reserved {
		id, body, err := watched.Reserve(timeout)
		return reserved{id, string(body), err}
	}

	got := make(chan reserved, 1)
	go func() { got <- reserve(20 * time.Second) }()
	until := time.Now().Add(10 * time.Second)
	for {
		stats, err := tube.Stats()
		if err == nil && stats["current-waiting"] == "1" {
			break
		}
		if time.Now().After(until) {
			fmt.Fprintf(os.Stderr, "no worker waits: last seen %v %v\n", stats, err)
			os.Exit(1)
		}
		time.Sleep(20 * time.Millisecond)
	}
	id, err := tube.Put([]byte("hello"), 7, 0, 30*time.Second)
	check(err, "put")
	expect(<-got, reserved{id, "hello", nil}, "the waiting worker's job")
	fmt.Println("ok waiting reserve")

	check(worker.Touch(id), "touch")
	stats, err := worker.StatsJob(id)
	check(err, "stats-job")
	expect(stats["state"]+" "+stats["pri"]+" "+stats["ttr"], "reserved 7 30", "the job")
	fmt.Println("ok touch, stats-job")

	check(worker.Release(id, 7, time.Second), "release")
	stats, err = producer.StatsJob(id)
	check(err, "stats-job")
	expect(stats["state"], "delayed", "after the release")
	expect(reserve(10*time.Second), reserved{id, "hello", nil}, "the job again")
	fmt.Println("ok release with delay")

	check(worker.Bury(id, 7), "bury")
	buried, _, err := tube.PeekBuried()
	check(err, "peek-buried")
	expect(buried, id, "the buried job")
	kicked, err := tube.Kick(10)
	check(err, "kick")
	expect(kicked, 1, "jobs kicked")
	expect(reserve(10*time.Second).id, id, "the kicked job")
	fmt.Println("ok bury, kick")

	check(tube.Pause(2*time.Second), "pause-tube")
	second, err := tube.Put([]byte("second"), 7, 0, 30*time.Second)
	check(err, "put")
	expect(errors.Is(reserve(0).err, beanstalk.ErrTimeout), true, "a paused tube gives nothing")
	expect(reserve(10*time.Second), reserved{second, "second", nil}, "the job after the pause")
	fmt.Println("ok pause")

	stats, err = tube.Stats()
	check(err, "stats-tube")
	expect(stats["total-jobs"], "2", "jobs of the tube")
	_, err = producer.Stats()
	check(err, "stats")
	fmt.Println("ok stats")

	check(worker.Delete(id), "delete")
	check(worker.Delete(second), "delete")
	expect(errors.Is(worker.Delete(id), beanstalk.ErrNotFound), true, "a second delete finds nothing")
	fmt.Println("ok delete")
}
