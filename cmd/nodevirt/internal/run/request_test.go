package run

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
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

func TestDisks(t *testing.T) {
	all, err := readDisks([]string{
		"example.com/tools:1", "other/tools", "x:1,name=data,path=/disk/b.img,bus=scsi,serial=D-1,boot=1,cache=none,io=native,errors=report,readonly",
		"y,cdrom", "size=1Gi", "size=2Gi,name=s2",
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "tools tools-2 data y scratch s2" {
		t.Errorf("names %s", got)
	}
	text, err := options{}.vmi(all)
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := vmspec.DecodeVMI([]byte(text)); len(problems) > 0 {
		t.Errorf("%s: %v", text, problems.ToAggregate())
	}
	if text, err = (options{}).vmi(all[:2]); err != nil || text != "" {
		t.Errorf("disks of which nothing is said are described: %s, %v", text, err)
	}
	if text, err = (options{display: true}).vmi(nil); err != nil || !strings.Contains(text, `"autoattachGraphicsDevice":true`) {
		t.Errorf("with a display: %s, %v", text, err)
	} else if _, problems := vmspec.DecodeVMI([]byte(text)); len(problems) > 0 {
		t.Errorf("%s: %v", text, problems.ToAggregate())
	}
	for flag, want := range map[string]string{
		"":               "want IMAGE or size=QUANTITY",
		"x,size=1Gi":     "want IMAGE or size=QUANTITY",
		"name=a":         "",
		"x,colour=red":   `"colour=red": want IMAGE`,
		"x,readonly=yes": `"readonly=yes": want IMAGE`,
		"x,serial":       `"serial": want IMAGE`,
		"x,boot=0":       `boot="0": want a number from 1`,
		"size=-1":        `size "-1": want a quantity`,
		"x,name=A b":     "name=A b: a lowercase",
		"x,name=disk":    "the VM has a disk of the name disk already",
	} {
		if _, err := readDisks([]string{flag}); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("--disk %q: %v, not %q", flag, err, want)
		}
	}
}
