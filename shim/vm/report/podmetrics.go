package report

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
)

// criMetrics are the metrics of one container at one moment. Names, units and the
// labels' order (the container's, then the metric's own) are those of
// containerd's ListMetricDescriptors, which the shim passes on. CRI has no
// fractions, so seconds are whole.
type criMetrics struct {
	at     int64
	labels []string
	list   []*runtimeapi.Metric
}

func (c *criMetrics) add(kind runtimeapi.MetricType, name string, n uint64, more ...string) {
	c.list = append(c.list, &runtimeapi.Metric{
		Name: name, Timestamp: c.at, MetricType: kind, Value: value(n),
		LabelValues: append(append([]string(nil), c.labels...), more...),
	})
}

func (c *criMetrics) counter(name string, n uint64, more ...string) {
	c.add(runtimeapi.MetricType_COUNTER, name, n, more...)
}

func (c *criMetrics) gauge(name string, n uint64, more ...string) {
	c.add(runtimeapi.MetricType_GAUGE, name, n, more...)
}

// containerMetrics are the metrics that containerd has of its running containers.
func (s *Stats) containerMetrics(r record.Container, used cgroup.Stats) []*runtimeapi.Metric {
	pod := r.Sandbox.Value.GetMetadata()
	now := time.Now()
	c := &criMetrics{at: now.UnixNano(), labels: []string{
		pod.GetName(), pod.GetNamespace(), r.Config.Value.GetMetadata().GetName(), r.ID,
		r.Config.Value.GetImage().GetUserSpecifiedImage(),
	}}
	c.gauge("container_last_seen", uint64(now.Unix()))
	c.gauge("container_start_time_seconds", uint64(r.StartedAt.Unix()))
	c.cpu(used)
	c.memory(used)
	if kills, err := s.groups.OOMKills(r); err == nil {
		c.counter("container_oom_events_total", kills)
	}
	c.io(used)
	c.disk(s.writableLayer(r), s.imageFS)
	c.gauge("container_processes", used.PIDs)
	c.gauge("container_threads", used.PIDs)
	c.gauge("container_threads_max", used.PIDsLimit)
	c.limits(s.groups.Limits(r))
	return c.list
}

func (c *criMetrics) cpu(used cgroup.Stats) {
	const second = uint64(time.Second)
	c.counter("container_cpu_usage_seconds_total", used.CPU/second)
	c.counter("container_cpu_user_seconds_total", used.CPUUser/second)
	c.counter("container_cpu_system_seconds_total", used.CPUSystem/second)
	c.counter("container_cpu_cfs_periods_total", used.Periods)
	c.counter("container_cpu_cfs_throttled_periods_total", used.ThrottledPeriods)
	c.counter("container_cpu_cfs_throttled_seconds_total", used.Throttled/second)
}

func (c *criMetrics) memory(used cgroup.Stats) {
	c.gauge("container_memory_usage_bytes", used.Memory)
	c.gauge("container_memory_working_set_bytes", used.WorkingSet)
	c.gauge("container_memory_max_usage_bytes", used.MemoryMax)
	c.gauge("container_memory_rss", used.RSS)
	c.gauge("container_memory_cache", used.Cache)
	c.gauge("container_memory_mapped_file", used.MappedFile)
	c.gauge("container_memory_total_active_file_bytes", used.ActiveFile)
	c.gauge("container_memory_total_inactive_file_bytes", used.InactiveFile)
	c.counter("container_memory_failures_total", used.PageFaults, "pgfault", "container")
	c.counter("container_memory_failures_total", used.MajorPageFaults, "pgmajfault", "container")
	c.gauge("container_memory_kernel_usage", used.Kernel)
	c.gauge("container_memory_swap", used.Swap)
	c.counter("container_memory_failcnt", used.MemoryFailures)
}

func (c *criMetrics) io(used cgroup.Stats) {
	for _, kind := range []struct {
		counts       []cgroup.DeviceIO
		reads, write string
	}{
		{used.IOBytes, "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"},
		{used.IOs, "container_fs_reads_total", "container_fs_writes_total"},
	} {
		for _, d := range kind.counts {
			device := fmt.Sprintf("%d:%d", d.Major, d.Minor)
			switch strings.ToLower(d.Op) {
			case "read":
				c.counter(kind.reads, d.Value, device)
			case "write":
				c.counter(kind.write, d.Value, device)
			}
		}
	}
	for _, d := range used.IOBytes {
		c.counter("container_blkio_device_usage_total", d.Value, fmt.Sprintf("%d:%d", d.Major, d.Minor),
			strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10), d.Op)
	}
}

// disk adds the overlay, and the file system that holds it.
func (c *criMetrics) disk(layer *runtimeapi.FilesystemUsage, folder string) {
	c.gauge("container_fs_usage_bytes", layer.GetUsedBytes().GetValue(), "/")
	var st syscall.Statfs_t
	if syscall.Statfs(folder, &st) != nil {
		return
	}
	c.gauge("container_fs_limit_bytes", st.Blocks*uint64(st.Bsize), "/")
	c.gauge("container_fs_inodes_total", layer.GetInodesUsed().GetValue(), "/") // containerd's reading
	c.gauge("container_fs_inodes_free", st.Ffree, "/")
}

func (c *criMetrics) limits(l cgroup.Limits) {
	for _, limit := range []struct {
		name string
		n    int64
	}{
		{"container_spec_cpu_period", int64(l.CPUPeriod)},
		{"container_spec_cpu_shares", int64(l.CPUShares)},
		{"container_spec_memory_limit_bytes", l.Memory},
		{"container_spec_memory_swap_limit_bytes", l.MemorySwap},
	} {
		if limit.n > 0 {
			c.gauge(limit.name, uint64(limit.n))
		}
	}
}
