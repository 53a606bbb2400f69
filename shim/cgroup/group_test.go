package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

// created makes a group with limits under a parent of the test's own.
func created(t *testing.T, l Limits) *Group {
	t.Helper()
	g, err := Open(testParent(t), "vm1")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Create(l); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAddMovesAllThreads(t *testing.T) {
	g := created(t, Limits{})
	child := again(t, "wait")
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(child) })
	threads := func() []string {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", child.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for end := time.Now().Add(time.Minute); len(threads()) < 2; time.Sleep(time.Millisecond) { // as it begins
		if time.Now().After(end) {
			t.Fatalf("threads of the child: %v", threads())
		}
	}
	if err := g.Add(child.Process.Pid); err != nil {
		t.Fatal(err)
	}

	want := g.config.Path
	for _, thread := range threads() {
		for line := range strings.Lines(read(t, thread)) {
			if at := strings.TrimSpace(strings.SplitN(line, ":", 3)[2]); at != want {
				t.Errorf("%s: %q, want the group %s", thread, line, want)
			}
		}
	}
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{child.Process.Pid}) {
		t.Errorf("PIDs() = %v, %v", pids, err)
	}
}

func TestAddRefuses(t *testing.T) {
	g := created(t, Limits{})
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{-1, 0, gone.Process.Pid} {
		if err := g.Add(pid); err == nil {
			t.Errorf("Add(%d) moved something", pid)
		}
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("PIDs() = %v, %v after three refusals", pids, err)
	}
}

func TestLimits(t *testing.T) {
	g := created(t, Limits{
		Memory: 64 << 20, MemorySwap: 64 << 20, CPUShares: 512, CPUQuota: 150_000, CPUPeriod: 100_000,
		CPUSetCPUs: "0", CPUSetMems: "0", Unified: map[string]string{},
		HugepageLimits: []HugepageLimit{{PageSize: "2MB", Bytes: 0}},
	})
	check := func(want map[string]string) {
		t.Helper()
		for file, value := range want {
			controller, _, _ := strings.Cut(file, ".")
			if got := read(t, g.paths[controller], file); got != value {
				t.Errorf("%s = %s, want %s", file, got, value)
			}
		}
	}
	check(map[string]string{
		"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864",
		"cpu.shares": "512", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000",
		"cpuset.cpus": "0", "cpuset.mems": "0",
	})

	if err := g.Set(Limits{Memory: 128 << 20, MemorySwap: 128 << 20, CPUQuota: -1}); err != nil {
		t.Fatal(err)
	}
	resized := map[string]string{
		"memory.limit_in_bytes": "134217728", "cpu.cfs_quota_us": "-1", "cpu.shares": "512",
	}
	check(resized)

	reopened, err := Open(filepath.Dir(g.config.Path), "vm1")
	if err != nil {
		t.Fatal(err)
	}
	if err := reopened.Create(Limits{CPUShares: 256}); err != nil {
		t.Fatal(err)
	}
	resized["cpu.shares"] = "256"
	check(resized)
}

func TestCreateTakesBackWhatFails(t *testing.T) {
	for name, l := range map[string]Limits{
		"no such CPU":   {CPUSetCPUs: "4096"},
		"unified on v1": {Unified: map[string]string{"memory.high": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Open(testParent(t), "vm1")
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Create(l); err == nil {
				t.Error("Create took it")
			}
			for controller, path := range g.paths {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the %q group was left: %v", controller, err)
				}
			}
		})
	}
}

func TestStats(t *testing.T) {
	g := created(t, Limits{Memory: 64 << 20})
	child := again(t, "hold")
	stdin, errIn := child.StdinPipe()
	stdout, errOut := child.StdoutPipe()
	if err := errors.Join(errIn, errOut, child.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(child) })
	if err := g.Add(child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	_, errIn = stdin.Write([]byte("\n"))
	_, errOut = bufio.NewReader(stdout).ReadString('\n')
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}

	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.CPU == 0 || s.PIDs < 2 || s.PageFaults == 0 || s.MemoryLimit != 64<<20 {
		t.Errorf("CPU, tasks, faults or limit: %+v", s)
	}
	if s.Memory < held || s.WorkingSet < held || s.RSS < held {
		t.Errorf("memory: %+v, of which the child holds %d", s, held)
	}
}

func TestConvert(t *testing.T) {
	v1 := cgroups.NewStats()
	v1.CpuStats.CpuUsage = cgroups.CpuUsage{TotalUsage: 9, UsageInUsermode: 5, UsageInKernelmode: 4}
	v1.CpuStats.ThrottlingData = cgroups.ThrottlingData{Periods: 3, ThrottledPeriods: 2, ThrottledTime: 1}
	v1.MemoryStats.Usage = cgroups.MemoryData{Usage: 100, MaxUsage: 150, Failcnt: 1, Limit: 1<<63 - 4096}
	v1.MemoryStats.SwapOnlyUsage.Usage -= 100 // no swap accounting: the library wraps around
	v1.MemoryStats.KernelUsage.Usage = 8
	v1.MemoryStats.Stats = map[string]uint64{
		"total_inactive_file": 30, "inactive_file": 1, "total_rss": 60, "total_cache": 35,
		"total_active_file": 5, "total_mapped_file": 2, "total_pgfault": 11, "total_pgmajfault": 7,
	}
	v1.BlkioStats.IoServicedRecursive = []cgroups.BlkioStatEntry{{Major: 8, Op: "Read", Value: 4}}
	if diff := cmp.Diff(Stats{
		CPU: 9, CPUUser: 5, CPUSystem: 4, Periods: 3, ThrottledPeriods: 2, Throttled: 1,
		Memory: 100, MemoryMax: 150, MemoryFailures: 1, WorkingSet: 70, RSS: 60, Cache: 35,
		ActiveFile: 5, InactiveFile: 30, MappedFile: 2, Kernel: 8, PageFaults: 11, MajorPageFaults: 7,
		IOs: []DeviceIO{{Major: 8, Op: "Read", Value: 4}},
	}, convert(v1)); diff != "" {
		t.Errorf("v1:\n%s", diff)
	}

	limited := cgroups.NewStats()
	limited.MemoryStats.Usage.Limit = 100
	limited.MemoryStats.SwapUsage.Limit = 160
	limited.MemoryStats.Stats = map[string]uint64{"total_swap": 20}
	if diff := cmp.Diff(Stats{MemoryLimit: 100, Swap: 20, SwapAvailable: 40}, convert(limited)); diff != "" {
		t.Errorf("v1 with a limit of swap:\n%s", diff)
	}

	v2 := cgroups.NewStats()
	v2.MemoryStats.Usage = cgroups.MemoryData{Usage: 100, Limit: 200}
	v2.MemoryStats.SwapOnlyUsage = cgroups.MemoryData{Usage: 7, Limit: 10}
	v2.MemoryStats.Stats = map[string]uint64{"inactive_file": 120, "anon": 60, "kernel_stack": 3}
	v2.PidsStats = cgroups.PidsStats{Current: 4, Limit: 50}
	v2.CpuStats.PSI = &cgroups.PSIStats{Some: cgroups.PSIData{Total: 2, Avg10: 0.5}}
	if diff := cmp.Diff(Stats{
		CPUPressure: &Pressure{Some: Stall{Total: 2000, Avg10: 0.5}},
		Memory:      100, MemoryLimit: 200, InactiveFile: 120, RSS: 60, Kernel: 3, Swap: 7, SwapAvailable: 3,
		PIDs: 4, PIDsLimit: 50,
	}, convert(v2)); diff != "" {
		t.Errorf("v2:\n%s", diff)
	}
}

func TestOOMKills(t *testing.T) {
	g := created(t, Limits{Memory: 20 << 20, MemorySwap: 20 << 20})
	if kills, err := g.OOMKills(); err != nil || kills != 0 {
		t.Fatalf("OOMKills() = %d, %v before any", kills, err)
	}
	child := again(t, "eat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(child) })
	if err := g.Add(child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if status := child.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the child ended with %v", child.ProcessState)
	}
	if kills, err := g.OOMKills(); err != nil || kills != 1 {
		t.Errorf("OOMKills() = %d, %v, want 1", kills, err)
	}
}

func TestNoSuchGroup(t *testing.T) {
	g, err := Open(testParent(t), "vm1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Stats(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stats: %v", err)
	}
	if _, err := g.OOMKills(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OOMKills: %v", err)
	}
	if err := g.Add(sleeper(t).Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Add: %v", err)
	}
	if pids, err := g.PIDs(); err != nil || pids != nil {
		t.Errorf("PIDs() = %v, %v", pids, err)
	}
	if err := g.Remove(); err != nil {
		t.Errorf("Remove: %v", err)
	}
}
