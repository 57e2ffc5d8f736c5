/*
 * Chance from outside, made repeatable. The standard library (hash maps), tokio (select!, watch) and
 * rand all draw their first numbers by getrandom(2), and look it up as a symbol so that it can be
 * taken from them. With TRELLIS_SIM_CHANCE in its environment this process gets numbers that follow
 * from that one alone, and the wall clock stands still; without it nothing is changed.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* 2026-01-01. */
#define WALL_SECONDS 1767225600

static int known;
static int simulated;
static uint64_t state;

static int is_simulated(void)
{
    if (!known) {
        const char *seed = getenv("TRELLIS_SIM_CHANCE");
        simulated = seed != NULL;
        if (simulated)
            state = strtoull(seed, NULL, 10);
        known = 1;
    }
    return simulated;
}

/* splitmix64 */
static uint64_t draw(void)
{
    uint64_t word = (state += 0x9E3779B97F4A7C15u);
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
    unsigned char *out = buffer;
    size_t done = 0;

    if (!is_simulated())
        return syscall(SYS_getrandom, buffer, length, flags);
    while (done < length) {
        uint64_t word = draw();
        size_t part = length - done < sizeof word ? length - done : sizeof word;
        memcpy(out + done, &word, part);
        done += part;
    }
    return (ssize_t)length;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock == CLOCK_REALTIME && is_simulated()) {
        time->tv_sec = WALL_SECONDS;
        time->tv_nsec = 0;
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}
