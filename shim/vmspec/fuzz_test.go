package vmspec_test

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// FuzzFromCRI gives strangers' text to each decoder. What comes through must be
// a machine within its bounds, which survives a record in JSON.
func FuzzFromCRI(f *testing.F) {
	f.Add(allVMI, "", "", "")
	f.Add("", `{"instance-id": "a", "public-keys": ["b"]}`, "ssh-rsa AAAA me", "#cloud-config")
	f.Add(least(`"cpu": {"cores": 2}`, `"rng": {}`), "a: &a [b]\nc: *a\n", "# none", "")
	f.Add(least(`"memory": {"guest": "1e9"}`, ``), "? [a]\n: {b: !!binary YQ==}", "", "x")
	for _, bad := range slices.Concat(badVMIs, badDisks) {
		f.Add(bad.vmi, "", "", "")
	}
	f.Fuzz(func(t *testing.T, vmi, metaData, sshKeys, userData string) {
		annotations := map[string]string{}
		for key, value := range map[string]string{
			vmspec.AnnotationVMI:      vmi,
			vmspec.AnnotationMetaData: metaData,
			vmspec.AnnotationSSHKeys:  sshKeys,
			vmspec.AnnotationUserData: userData,
		} {
			if value != "" {
				annotations[key] = value
			}
		}
		p := pod(annotations)
		early := vmspec.ValidateSandbox(p)
		spec, err := vmspec.FromCRI(p, container(&runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 1 << 32,
		}))
		if early != nil && err == nil {
			t.Errorf("ValidateSandbox is stricter: %v", early)
		}
		if err != nil {
			if text := err.Error(); len(text) > 64<<10 || !utf8.ValidString(text) {
				t.Errorf("an error of %d bytes: %.1000q", len(text), text)
			}
			return
		}
		checkBounds(t, spec.Resolve(vmspec.Facts{}))
	})
}

func checkBounds(t *testing.T, spec vmspec.Spec) {
	t.Helper()
	if n := spec.CPU.Sockets * spec.CPU.Cores * spec.CPU.Threads; n < 1 || n > 240 {
		t.Errorf("%d vCPUs", n)
	}
	if spec.Memory < 16<<20 || spec.Memory > 1<<32 || spec.Memory%(1<<20) != 0 {
		t.Errorf("%d bytes of memory", spec.Memory)
	}
	if len(validation.IsDNS1123Label(spec.Hostname)) > 0 {
		t.Errorf("host name %q", spec.Hostname)
	}
	names, sources := map[string]bool{}, map[vmspec.Source]int{}
	for _, d := range spec.Disks {
		if len(validation.IsDNS1123Label(d.Name)) > 0 || names[d.Name] {
			t.Errorf("disk name %q", d.Name)
		}
		names[d.Name] = true
		sources[d.Source]++
	}
	wantSeeds := 0
	if spec.Seed != nil {
		wantSeeds = 1
	}
	if sources[vmspec.SourceImage] > 1 || sources[vmspec.SourceSeed]+sources[vmspec.SourceConfigDrive] != wantSeeds ||
		len(spec.Disks) != sources[vmspec.SourceImage]+wantSeeds+sources[vmspec.SourceEmpty] {
		t.Errorf("disks %+v, seed %v", spec.Disks, spec.Seed)
	}
	record, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var again vmspec.Spec
	if err := json.Unmarshal(record, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, again); diff != "" {
		t.Errorf("after a record (-want +got):\n%s", diff)
	}
}
