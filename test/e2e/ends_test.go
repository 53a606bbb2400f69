package e2e

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestEndsOfAGuest(t *testing.T) {
	const rebootPolicy = `{
		"domain": {"rebootPolicy": "Terminate", "devices": {
			"disks": [{"name": "root", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]
		}},
		"networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "root", "containerDisk": {"image": ""}}]
	}`
	for _, end := range []struct {
		name   string
		vmi    string
		do     func(*container)
		code   int32
		reason string
		says   string // in the message
	}{
		{"poweroff", "", func(c *container) { c.page("/cgi-bin/poweroff") }, 0, "Completed", ""},
		{"reboot", rebootPolicy, func(c *container) { c.page("/cgi-bin/reboot") }, 0, "Completed", ""},
		{"panic", "", func(c *container) { c.page("/cgi-bin/panic") }, 134, "GuestPanicked", "panic"},
		{"killed", "", (*container).kill, 137, "Error", "QEMU"},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			var annotations map[string]string
			if end.vmi != "" {
				annotations = map[string]string{"nodevirt.io/vmi": end.vmi}
			}
			c := vmPod(t, annotated(annotations)).vm(suite.tiny).start().up()
			end.do(c)
			s := c.ended()
			c.wantEnd(s, end.code, end.reason)
			if !strings.Contains(s.Message, end.says) || (s.Message == "") != (end.says == "") {
				t.Errorf("message %q; want %q in it", s.Message, end.says)
			}
			c.removeIt()
			c.wantGone()
		})
	}
}

func TestStopOfAGuestThatIgnoresThePowerButton(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.halt).start()
	c.saying("halted$")
	begun := time.Now()
	c.stop(2)
	s := c.status()
	c.wantEnd(s, 137, "Error")
	if s.Message == "" || s.FinishedAt < begun.Add(2*time.Second).UnixNano() {
		t.Errorf("powered off %s after the stop began, with the message %q",
			time.Unix(0, s.FinishedAt).Sub(begun), s.Message)
	}
}

// A power button that is pressed while a guest boots is not heard; it is pressed again.
func TestStopOfAGuestThatBoots(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.tiny).start()
	c.stop(300)
	c.wantEnd(c.status(), 0, "Completed")
}

func TestStopWithoutGracePeriod(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.tiny).start().up()
	c.stop(0)
	c.wantEnd(c.status(), 137, "Error")
	for _, line := range readLog(t, c.logFile()) {
		if strings.Contains(line, "guest: poweroff") {
			t.Error("the guest was asked to power off")
		}
	}
}

func TestRemoveOfARunningVM(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.halt).start()
	c.removeIt()
	c.wantGone()
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	p := vmPod(t, func(c *runtimeapi.PodSandboxConfig) {
		c.Linux.Overhead.MemoryLimitInBytes = 64 * mebibyte
	})
	c := p.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 512 * mebibyte
	}).start().up()
	// Under emulation QEMU takes far more than this pod's overhead beside the guest's memory.
	url := c.url("/cgi-bin/memory?440")
	asked, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { _, _ = suite.Fetch(asked, "GET", url, "") }) // no answer will come
	s := c.ended()
	cancel()
	asking.Wait()
	c.wantEnd(s, 137, "OOMKilled")
	if !strings.Contains(s.Message, "overhead") {
		t.Errorf("message %q", s.Message)
	}
}
