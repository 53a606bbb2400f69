package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/measures"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestMetricsOfTheProcess: the shim has metrics of its process, and counts its calls.
func TestMetricsOfTheProcess(t *testing.T) {
	vmPod(t).vm(suite.halt).start()
	assert.NilError(t, pull(t.Context(), suite.halt))
	for _, series := range []string{
		"go_goroutines", "process_open_fds",
		`nodevirt_cri_requests_total{code="OK",method="StartContainer",side="shim"}`,
		`nodevirt_cri_requests_total{code="OK",method="PullImage",side="containerd"}`,
		`nodevirt_cri_request_duration_seconds_count{method="RunPodSandbox",side="both"}`,
	} {
		if n, err := suite.Sample(t.Context(), series); err != nil || n < 1 {
			t.Errorf("%s = %v, %v", series, n, err)
		}
	}
}

// TestMetricsOfVMs is not parallel: it stops QEMU, and libvirtd, for a while.
func TestMetricsOfVMs(t *testing.T) {
	p := vmPod(t)
	vm, hanging := p.vm(suite.tiny).start().up(), vmPod(t, named("hanging")).vm(suite.halt).start()
	vm.post("/cgi-bin/disk", "a write of the guest")
	// The guest's balloon driver reports its memory every ten seconds.
	wait.Until(t, "a guest tells of its memory", func() bool { return vm.has("kubevirt_vmi_memory_usable_bytes", "") })
	for series, least := range map[string]float64{
		vm.series("kubevirt_vmi_cpu_usage_seconds_total", ""):                       0.1,
		vm.series("kubevirt_vmi_memory_domain_bytes", ""):                           guestMemory,
		vm.series("kubevirt_vmi_memory_actual_balloon_bytes", ""):                   guestMemory,
		vm.series("kubevirt_vmi_memory_resident_bytes", ""):                         guestMemory / 4,
		vm.series("kubevirt_vmi_storage_iops_write_total", `drive="disk",`):         1,
		vm.series("kubevirt_vmi_storage_read_traffic_bytes_total", `drive="disk",`): mebibyte,
		vm.card("kubevirt_vmi_network_receive_bytes_total"):                         500,
		vm.card("kubevirt_vmi_network_transmit_bytes_total"):                        500,
		vm.series("nodevirt_vm_start_time_seconds", ""):                             1.7e9,
		vm.series("nodevirt_vm_agent_connected", ""):                                0,
		vm.series("nodevirt_vm_overlay_used_bytes", ""):                             4096,
		hanging.series("nodevirt_vm_memory_working_set_bytes", ""):                  mebibyte,
		`nodevirt_vms{state="running"}`:                                             2,
		`nodevirt_vm_start_phase_duration_seconds_count{phase="domain"}`:            2,
		`nodevirt_image_acquire_duration_seconds_count{result="ok"}`:                2,
		"nodevirt_libvirt_up":    1,
		"nodevirt_containerd_up": 1,
		"nodevirt_images_in_use": 2,
	} {
		if n, err := suite.Sample(t.Context(), series); err != nil || n < least {
			t.Errorf("%s = %v, want %v or more: %v", series, n, least, err)
		}
	}
	everyNameIsThere(t)

	wake := halt(t, hanging.pid())
	wait.Until(t, "of a QEMU that hangs libvirt tells nothing, and of the other all", func() bool {
		return !hanging.has("kubevirt_vmi_memory_resident_bytes", "") && vm.has("kubevirt_vmi_memory_resident_bytes", "") &&
			hanging.has("kubevirt_vmi_cpu_usage_seconds_total", "")
	})
	wake()

	wake = halt(t, daemonPID(t, node.Libvirtd))
	wait.Until(t, "without libvirtd there are the figures of the cgroup", func() bool {
		up, err := suite.Sample(t.Context(), "nodevirt_libvirt_up")
		return err == nil && up == 0 && vm.has("kubevirt_vmi_cpu_usage_seconds_total", "") && !vm.has("kubevirt_vmi_memory_resident_bytes", "")
	})
	wake()
	wait.Until(t, "libvirtd tells again", func() bool { return vm.has("kubevirt_vmi_memory_resident_bytes", "") })

	vm.stop(0)
	wait.Until(t, "a VM that ended has no series", func() bool { return !vm.has("kubevirt_vmi_cpu_usage_seconds_total", "") })
}

// halt stops a process of the node until wake is called, or the test ends.
func halt(t *testing.T, pid int) (wake func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	send := func(signal string) {
		_, err := suite.Output(ctx, "kill", signal, strconv.Itoa(pid))
		assert.NilError(t, err)
	}
	send("-STOP")
	wake = sync.OnceFunc(func() { send("-CONT") })
	t.Cleanup(wake)
	return wake
}

func daemonPID(t *testing.T, name string) int {
	t.Helper()
	all, err := suite.Components()
	assert.NilError(t, err)
	for _, c := range all {
		if c.Name == name {
			return c.PID
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// series is a metric of a VM with its labels, of which those in before come first.
func (c *container) series(name, before string) string {
	m := c.pod.config.Metadata
	return fmt.Sprintf("%s{%sname=%q,namespace=%q,node=%q}", name, before, m.Name, m.Namespace, suite.Name())
}

// card is a metric of a VM's network card.
func (c *container) card(name string) string {
	return strings.Replace(c.series(name, `interface="default",`), ",node=", `,network="default",node=`, 1)
}

// has reports whether a scrape, which must succeed, has a series.
func (c *container) has(name, before string) bool {
	c.t.Helper()
	text, err := suite.Scrape(c.t.Context())
	assert.NilError(c.t, err)
	return strings.Contains(text, c.series(name, before)+" ")
}

const monitoring = "../../deploy/monitoring"

// controllerNames returns the metrics of VMs that the controller serves.
func controllerNames() []string {
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		measures.New(nil, config.Source{}, nil, nil).Describe(all)
	}()
	var names []string
	for d := range all {
		names = append(names, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	return names
}

// everyNameIsThere wants each metric that the alerts and the dashboard use in a scrape, among the controller's, or
// among those that the rules record.
func everyNameIsThere(t *testing.T) {
	t.Helper()
	text, err := suite.Scrape(t.Context())
	assert.NilError(t, err)
	elsewhere := controllerNames()
	rules, err := os.ReadFile(filepath.Join(monitoring, "nodevirt.rules.yaml"))
	assert.NilError(t, err)
	for _, recorded := range regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(string(rules), -1) {
		elsewhere = append(elsewhere, recorded[1])
	}
	files, err := filepath.Glob(filepath.Join(monitoring, "*"))
	assert.NilError(t, err)
	names := 0
	for _, file := range files {
		used, err := os.ReadFile(file)
		assert.NilError(t, err)
		for _, name := range regexp.MustCompile(`\b([a-z]+:)?(nodevirt|kubevirt|go|process)_[a-z_]+(:[a-z0-9]+)?`).FindAllString(string(used), -1) {
			names++
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") && !slices.Contains(elsewhere, name) {
				t.Errorf("%s uses %s, which nothing serves", file, name)
			}
		}
	}
	if names < 50 {
		t.Errorf("only %d names were found in %q", names, files)
	}
}

// TestAlerts has promtool check the alerts, and try them on made-up series.
func TestAlerts(t *testing.T) {
	t.Parallel()
	bin, err := filepath.Abs("../../bin/promtool")
	assert.NilError(t, err)
	for _, args := range [][]string{
		{"check", "rules", "--lint", "all", "--lint-fatal", "nodevirt.rules.yaml"},
		{"test", "rules", "nodevirt.rules.test.yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestMetricsByConvention has promtool look at names, units and texts.
func TestMetricsByConvention(t *testing.T) {
	text, err := suite.Scrape(t.Context())
	assert.NilError(t, err)
	cmd := exec.CommandContext(t.Context(), "../../bin/promtool", "check", "metrics")
	// KubeVirt's names are as they are; go_ and process_ are the library's.
	var ours strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "nodevirt_") {
			ours.WriteString(line)
		}
	}
	cmd.Stdin = strings.NewReader(ours.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
