package run

import (
	"path/filepath"
	"regexp"
	"testing"
)

func TestRequest(t *testing.T) {
	o := options{
		name: "web", namespace: "default", memory: "1Gi", cpus: "1.5", pull: pullMissing,
		logDirectory: "/var/log/pods", cgroupParent: "/nodevirt",
	}
	r, err := o.request("x:1")
	if err != nil {
		t.Fatal(err)
	}
	id := r.sandbox.GetMetadata().GetUid()
	limits := r.container.GetLinux().GetResources()
	for what, c := range map[string][2]any{
		"log directory": {r.sandbox.GetLogDirectory(), "/var/log/pods/default_web_" + id},
		"cgroup":        {r.sandbox.GetLinux().GetCgroupParent(), "/nodevirt/pod" + id},
		"hostname":      {r.sandbox.GetHostname(), "web"},
		"memory":        {limits.GetMemoryLimitInBytes(), int64(1 << 30)},
		"quota":         {limits.GetCpuQuota(), int64(150_000)},
		"period":        {limits.GetCpuPeriod(), int64(100_000)},
		"label":         {r.container.GetLabels()["io.kubernetes.pod.uid"], id},
		"slice":         {slice("/nodevirt/poda-b"), "nodevirt-poda_b.slice"},
		"log":           {filepath.Ext(r.container.GetLogPath()), ".log"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %v, not %v", what, c[0], c[1])
		}
	}
}

func TestANameIsMadeOfTheImages(t *testing.T) {
	for image, want := range map[string]string{
		"example.com:5000/disks/Debian_12:v1": `^debian-12-[a-z0-9]{5}$`,
		"x@sha256:0123":                       `^x-[a-z0-9]{5}$`,
		"___":                                 `^vm-[a-z0-9]{5}$`,
	} {
		if got := nameFor(image); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, not %s", image, got, want)
		}
	}
}
