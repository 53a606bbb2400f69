package vmi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// review returns the review of an instance with a spec, and of its former spec
// unless that is "".
func review(t *testing.T, spec, old string) *admission.Review {
	t.Helper()
	r := &admission.Review{Object: admission.Tree{"spec": decoded(t, spec)}, Meta: metav1.ObjectMeta{Name: "web"}}
	if old != "" {
		r.Old = admission.Tree{"spec": decoded(t, old)}
	}
	return r
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, spec, want string
	}{
		{"web", spec, ""},
		{"web", `null`, "spec: Required value: describe the VM here"},
		{"web", strings.Replace(spec, "volumes", "volume", 1), "spec.volume: unknown field"},
		{strings.Repeat("x", 64), spec, ""},
	} {
		r := review(t, tt.spec, "")
		r.Meta.Name = tt.name
		var got string
		if problems := check(r); len(problems) > 0 {
			got = fields.Sentence(problems[0])
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.name, tt.spec, got, tt.want)
		}
	}
}

// TestCheckUpdate: an instance's spec never changes, but for its placement, and for less time to
// shut down.
func TestCheckUpdate(t *testing.T) {
	for _, tt := range []struct{ now, want string }{
		{spec, ""},
		{strings.Replace(spec, "64Mi", "128Mi", 1), "spec.domain.memory.guest"},
		{strings.Replace(spec, `"volumes": [`, `"volumes": [{"name": "more"}, `, 1), "spec.volumes"},
		{strings.Replace(spec, `"disk": {}`, `"cdrom": {}`, 1), "spec.domain.devices.disks[0].cdrom, spec.domain.devices.disks[0].disk"},
		{strings.Replace(spec, `"volumes": [`, `"nodeSelector": {"a": "b"}, "tolerations": [{"key": "c"}], "affinity": {}, "volumes": [`, 1), ""},
		{strings.Replace(spec, `"volumes": [`, `"terminationGracePeriodSeconds": 0, "volumes": [`, 1), ""},
		{strings.Replace(spec, `"volumes": [`, `"terminationGracePeriodSeconds": 31, "volumes": [`, 1), "spec.terminationGracePeriodSeconds"},
		{`7`, "spec"},
	} {
		var paths []string
		for _, p := range checkUpdate(review(t, tt.now, spec)) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.now, got, tt.want)
		}
	}
}

// TestCheckLinks: a running instance may get another state of a link, and nothing else of a network card.
func TestCheckLinks(t *testing.T) {
	const before = `{"domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "lan", "state": "down"}]}}}`
	for _, tt := range []struct{ from, to, want string }{
		{`"state": "down"`, `"state": "up"`, ""},
		{`, "state": "down"`, ``, ""},
		{`"name": "default"`, `"name": "default", "state": "down"`, ""},
		{`"state": "down"`, `"state": "up", "model": "e1000e"`, "spec.domain.devices.interfaces[1].model"},
		{`, {"name": "lan", "state": "down"}`, ``, "spec.domain.devices.interfaces"},
	} {
		var paths []string
		for _, p := range checkUpdate(review(t, strings.Replace(before, tt.from, tt.to, 1), before)) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.to, got, tt.want)
		}
	}
}

// TestCheckMoved: a volume may get the PVC to which the instance's status has its disk copied, and no other.
func TestCheckMoved(t *testing.T) {
	const before = `{"domain": {}, "volumes": [{"name": "root", "containerDisk": {"image": "a"}}, {"name": "data", "dataVolume": {"name": "old"}}]}`
	for _, tt := range []struct{ volume, status, want string }{
		{`"persistentVolumeClaim": {"claimName": "new"}`, `{"migratedVolumes": [{"volumeName": "data", "destinationPVCInfo": {"claimName": "new"}}]}`, ""},
		{`"dataVolume": {"name": "new"}`, `{"migratedVolumes": [{"volumeName": "data", "destinationPVCInfo": {"claimName": "new"}}]}`, ""},
		{`"dataVolume": {"name": "other"}`, `{"migratedVolumes": [{"volumeName": "data", "destinationPVCInfo": {"claimName": "new"}}]}`, "spec.volumes[1].dataVolume.name"},
		{`"dataVolume": {"name": "new"}`, `{"migratedVolumes": [{"volumeName": "root", "destinationPVCInfo": {"claimName": "new"}}]}`, "spec.volumes[1].dataVolume.name"},
		{`"dataVolume": {"name": "new"}`, `{}`, "spec.volumes[1].dataVolume.name"},
	} {
		r := review(t, strings.Replace(before, `"dataVolume": {"name": "old"}`, tt.volume, 1), before)
		r.Old["status"] = decoded(t, tt.status)
		var paths []string
		for _, p := range checkUpdate(r) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s with %s: %q, want %q", tt.volume, tt.status, got, tt.want)
		}
	}
}

// TestCheckCards: a running instance may get network cards at the end that running VMs can get, and lose absent ones.
func TestCheckCards(t *testing.T) {
	const before = `{"domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "gone", "state": "absent"}, {"name": "lan", "bridge": {}}]}},
		"networks": [{"name": "default", "pod": {}}, {"name": "gone", "multus": {"networkName": "a"}}, {"name": "lan", "multus": {"networkName": "one"}}]}`
	add := func(card, network string) *strings.Replacer {
		return strings.NewReplacer(`{"name": "lan", "bridge": {}}`, `{"name": "lan", "bridge": {}}, {"name": "new", `+card+`}`,
			`{"networkName": "one"}}`, `{"networkName": "one"}}, {"name": "new", `+network+`}`)
	}
	const multus = `"multus": {"networkName": "one"}`
	lose := strings.NewReplacer(`, {"name": "gone", "state": "absent"}`, "", `, {"name": "gone", "multus": {"networkName": "a"}}`, "")
	for name, tt := range map[string]struct {
		change  *strings.Replacer
		waiting bool
		want    string
	}{
		"a card":               {change: add(`"bridge": {}, "state": "down"`, multus)},
		"before it runs":       {change: add(`"bridge": {}`, multus), waiting: true, want: "spec.domain.devices.interfaces, spec.networks"},
		"an absent one":        {change: lose},
		"one that is there":    {change: strings.NewReplacer(`, {"name": "lan", "bridge": {}}`, "", `, {"name": "lan", "multus": {"networkName": "one"}}`, ""), want: "spec.domain.devices.interfaces, spec.networks"},
		"to be absent":         {change: strings.NewReplacer(`{"name": "lan", "bridge": {}}`, `{"name": "lan", "bridge": {}, "state": "absent"}`)},
		"on the pod's network": {change: add(`"bridge": {}`, `"pod": {}`), want: "spec.domain.devices.interfaces[3]"},
		"of the node":          {change: add(`"sriov": {}`, multus), want: "spec.domain.devices.interfaces[3]"},
		"without a network":    {change: strings.NewReplacer(`{"name": "lan", "bridge": {}}`, `{"name": "lan", "bridge": {}}, {"name": "new"}`), want: "spec.domain.devices.interfaces[3]"},
		"and another model":    {change: strings.NewReplacer(`{"name": "lan", "bridge": {}}`, `{"name": "lan", "bridge": {}, "model": "e1000e"}, {"name": "new"}`, `{"networkName": "one"}}`, `{"networkName": "one"}}, {"name": "new", `+multus+`}`), want: "spec.domain.devices.interfaces[2].model"},
	} {
		r := review(t, tt.change.Replace(before), before)
		if !tt.waiting {
			r.Old["status"] = map[string]any{"phase": "Running"}
		}
		var paths []string
		for _, p := range checkUpdate(r) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCheckNetworks: a running instance may name another network for a card that is no device of the node.
func TestCheckNetworks(t *testing.T) {
	const before = `{"domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "lan", "bridge": {}}, {"name": "vf", "sriov": {}}]}},
		"networks": [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "one"}}, {"name": "vf", "multus": {"networkName": "device"}}]}`
	for _, tt := range []struct{ from, to, want string }{
		{`"one"`, `"two"`, ""},
		{`"device"`, `"other"`, "spec.networks[2].multus.networkName"},
		{`"networkName": "one"`, `"networkName": "two", "default": true`, "spec.networks[1].multus.default, spec.networks[1].multus.networkName"},
		{`"multus": {"networkName": "one"}`, `"resourceClaim": {}`, "spec.networks[1].multus, spec.networks[1].resourceClaim"},
	} {
		var paths []string
		for _, p := range checkUpdate(review(t, strings.Replace(before, tt.from, tt.to, 1), before)) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.to, got, tt.want)
		}
	}
}

// TestCheckGrowth: a running instance may get more, and nothing less.
func TestCheckGrowth(t *testing.T) {
	const before = `{"domain": {"cpu": {"sockets": 2, "cores": 1, "maxSockets": 4}, "memory": {"guest": "1Gi", "maxGuest": "2Gi"},
		"resources": {"requests": {"memory": "512Mi"}}}}`
	for name, tt := range map[string]struct{ from, to, want string }{
		"sockets":         {`"sockets": 2`, `"sockets": 3`, ""},
		"fewer sockets":   {`"sockets": 2`, `"sockets": 1`, "spec.domain.cpu.sockets"},
		"cores":           {`"cores": 1`, `"cores": 2`, "spec.domain.cpu.cores"},
		"another maximum": {`"maxSockets": 4`, `"maxSockets": 8`, "spec.domain.cpu.maxSockets"},
		"no maximum":      {`"sockets": 2`, `"sockets": 2`, ""},
		"memory":          {`"guest": "1Gi"`, `"guest": "1536Mi"`, ""},
		"less memory":     {`"guest": "1Gi"`, `"guest": "512Mi"`, "spec.domain.memory.guest"},
		"request":         {`"memory": "512Mi"`, `"memory": "1Gi"`, "spec.domain.resources.requests.memory"},
	} {
		var paths []string
		for _, p := range checkUpdate(review(t, strings.Replace(before, tt.from, tt.to, 1), before)) {
			paths = append(paths, p.Field)
		}
		if got := strings.Join(paths, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for request, sound := range map[string]bool{"1536Mi": true, "1Gi": true, "1537Mi": false, "256Mi": false} {
		both := strings.NewReplacer(`"guest": "1Gi"`, `"guest": "2Gi"`, `"memory": "512Mi"`, `"memory": "`+request+`"`).Replace(before)
		if p := checkUpdate(review(t, both, before)); len(p) == 0 != sound {
			t.Errorf("memory with a request of %s: %v", request, p)
		}
	}
	without := strings.Replace(before, `, "maxSockets": 4`, "", 1)
	if p := checkUpdate(review(t, strings.Replace(without, `"sockets": 2`, `"sockets": 3`, 1), without)); len(p) != 1 {
		t.Errorf("sockets without a maximum: %v", p)
	}
}

// TestDefaults: an instance shows what KubeVirt's defaults make of it, and what is
// set stays.
func TestDefaults(t *testing.T) {
	for name, tt := range map[string]struct{ spec, want string }{
		"least": {spec, `{"domain": {"machine": {"type": "q35"}, "cpu": {"sockets": 1, "cores": 1, "threads": 1},
			"resources": {"requests": {"memory": "64Mi"}}, "memory": {"guest": "64Mi"},
			"devices": {"disks": [{"name": "root", "disk": {"bus": "sata"}}], "interfaces": [{"name": "default", "bridge": {}}]}},
			"networks": [{"name": "default", "pod": {}}],
			"volumes": [{"name": "root", "containerDisk": {"image": "example.com/fedora:41"}}]}`},
		"volume without a disk, memory by request, no network": {`{"domain": {"resources": {"requests": {"memory": "64Mi"}},
			"devices": {"autoattachPodInterface": false}}, "volumes": [{"name": "root", "containerDisk": {"image": "x"}}]}`,
			`{"domain": {"machine": {"type": "q35"}, "cpu": {"sockets": 1, "cores": 1, "threads": 1},
			"resources": {"requests": {"memory": "64Mi"}}, "memory": {"guest": "64Mi"},
			"devices": {"autoattachPodInterface": false, "disks": [{"name": "root", "disk": {"bus": "sata"}}]}},
			"volumes": [{"name": "root", "containerDisk": {"image": "x"}}]}`},
		"limits, inputs": {`{"domain": {"resources": {"limits": {"cpu": 2, "memory": "64Mi"}}, "devices": {"autoattachPodInterface": false,
			"autoattachInputDevice": true}}}`,
			`{"domain": {"machine": {"type": "q35"}, "cpu": {"sockets": 2, "cores": 1, "threads": 1},
			"resources": {"limits": {"cpu": 2, "memory": "64Mi"}, "requests": {"cpu": "2", "memory": "64Mi"}}, "memory": {"guest": "64Mi"},
			"devices": {"autoattachPodInterface": false, "autoattachInputDevice": true,
				"inputs": [{"name": "default-0", "type": "tablet", "bus": "usb"}]}}}`},
		"binding of a plug-in": {`{"domain": {"memory": {"guest": "64Mi"}, "devices": {"interfaces": [{"name": "default", "binding": {"name": "l2"}}]}},
			"networks": [{"name": "default", "pod": {}}]}`,
			`{"domain": {"machine": {"type": "q35"}, "cpu": {"sockets": 1, "cores": 1, "threads": 1},
			"resources": {"requests": {"memory": "64Mi"}}, "memory": {"guest": "64Mi"},
			"devices": {"interfaces": [{"name": "default", "binding": {"name": "l2"}}]}}, "networks": [{"name": "default", "pod": {}}]}`},
		"all set": {`{"domain": {"machine": {"type": "pc"}, "cpu": {"sockets": 2, "cores": 1, "threads": 1},
			"memory": {"guest": "64Mi"},
			"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "cdrom": {}}],
				"interfaces": [{"name": "default", "masquerade": {}}]}},
			"networks": [{"name": "default", "pod": {}}],
			"volumes": [{"name": "root", "containerDisk": {"image": "x"}}, {"name": "seed", "cloudInitNoCloud": {"userData": "#"}}]}`,
			`{"domain": {"machine": {"type": "pc"}, "cpu": {"sockets": 2, "cores": 1, "threads": 1},
			"resources": {"requests": {"memory": "64Mi"}}, "memory": {"guest": "64Mi"},
			"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "cdrom": {"bus": "sata"}}],
				"interfaces": [{"name": "default", "masquerade": {}}]}},
			"networks": [{"name": "default", "pod": {}}],
			"volumes": [{"name": "root", "containerDisk": {"image": "x"}}, {"name": "seed", "cloudInitNoCloud": {"userData": "#"}}]}`},
	} {
		r := review(t, tt.spec, "")
		if problems := check(r); len(problems) > 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		for range 2 { // the second time changes nothing
			setDefaults(r, r.Object["spec"].(admission.Tree))
			got, err := json.Marshal(r.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, tt.want), decoded(t, string(got))); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", name, diff)
			}
		}
	}
}

// TestKind: the descriptor has what the API server and other parts go by.
func TestKind(t *testing.T) {
	k := Kind()
	if k.Name() != "VirtualMachineInstance" || k.Resource() != "virtualmachineinstances" || k.SetUp == nil || !k.Admission.Instance {
		t.Errorf("%s, %s, instance %t", k.Name(), k.Resource(), k.Admission.Instance)
	}
}
