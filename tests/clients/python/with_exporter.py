"""beanstalkd-exporter would start a beanstalkd of its own; here its reader looks at ours."""

import greenstalk
from beanstalk_exporter.client import BeanstalkClient
from beanstalk_exporter.collector import Collector
from prometheus_client import generate_latest
from story import PRODUCER, TUBE, WORKER, expect, ok

producer = greenstalk.Client(PRODUCER, use=TUBE)
for _ in range(3):
    producer.put("counted", delay=60)

client = BeanstalkClient(*WORKER)
stats = client.stats()
expect(int(stats["current-jobs-delayed"]) >= 3, True, "delayed jobs of the server")
expect(TUBE in client.list_tubes(), True, "the tube is listed")
expect(client.stats_tube(TUBE)["current-jobs-delayed"], "3", "delayed jobs of the tube")
ok("stats")

Collector(client, interval=1).collect()
text = generate_latest().decode()
lines = [line for line in text.splitlines() if TUBE in line and line.endswith(" 3.0")]
expect(bool(lines), True, "a metric of the tube that says 3")
ok("metrics")
