package manifest_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// tree decodes JSON as the controller does.
func tree(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func sentences(problems field.ErrorList) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fields.Sentence(p))
	}
	return strings.Join(lines, "\n")
}

const machineAndDisk = `
	"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root"}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/fedora:41", "imagePullSecret": "pull"}}]`

// allOfPods sets each field that a manifest may say of a VMI's pod.
const allOfPods = `{
	"subdomain": "web", "priorityClassName": "high", "schedulerName": "mine", "serviceAccountName": "runner", "architecture": "amd64",
	"evictionStrategy": "None", "nodeSelector": {"zone": "b"},
	"affinity": {
		"nodeAffinity": {
			"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
				"matchExpressions": [
					{"key": "zone", "operator": "In", "values": ["b"]},
					{"key": "cpus", "operator": "Gt", "values": ["8"]},
					{"key": "gpu", "operator": "DoesNotExist"}],
				"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]}]},
			"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
				"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]},
		"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
			"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}}]},
		"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
			"topologyKey": "kubernetes.io/hostname",
			"namespaceSelector": {}, "labelSelector": {"matchLabels": {"app": "web"}}}]}},
	"tolerations": [
		{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
		{"operator": "Exists"}],
	"topologySpreadConstraints": [{
		"maxSkew": 1, "minDomains": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
		"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore",
		"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["version"]}],
	"dnsPolicy": "None",
	"dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["example.com", "example.com.", ".", "_tcp.example.com"],
		"options": [{"name": "ndots", "value": "2"}]},
	"livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP",
		"httpHeaders": [{"name": "Host", "value": "x"}]},
		"initialDelaySeconds": 1, "timeoutSeconds": 1, "periodSeconds": 1, "successThreshold": 1,
		"failureThreshold": 9},
	"readinessProbe": {"exec": {"command": ["true"]}},` + machineAndDisk + `}`

func TestCheckVMIOfPods(t *testing.T) {
	for _, text := range []string{
		allOfPods,
		`{"dnsPolicy": "ClusterFirstWithHostNet",` + machineAndDisk + `}`,
		`{"readinessProbe": {"guestAgentPing": {}}, "livenessProbe": {"tcpSocket": {"port": 22}},` + machineAndDisk + `}`,
	} {
		spec, problems := manifest.CheckVMI(field.NewPath("spec"), tree(t, text))
		if len(problems) > 0 {
			t.Fatal(sentences(problems))
		}
		// What the types encode can be read again.
		again, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := manifest.CheckVMI(field.NewPath("spec"), tree(t, string(again))); len(problems) > 0 {
			t.Errorf("%s: %s", again, sentences(problems))
		}
	}
}

// TestPaths holds the tables against the types of the API.
func TestPaths(t *testing.T) {
	seen := map[string]bool{}
	for _, path := range vmspec.Supported().And(manifest.PodFields()).Paths("spec.") {
		if seen[path] {
			t.Errorf("the tables have %s twice", path)
		}
		seen[path] = true
		if fieldstest.TypeAt(reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec](), path) == nil {
			t.Errorf("%s is not in the API", path)
		}
	}
	for _, path := range []string{"spec.affinity", "spec.livenessProbe.httpGet.port"} {
		if !seen[path] {
			t.Errorf("%s is not among the paths", path)
		}
	}
}

// TestCheckVMITogether: sound fields are held against each other though others
// are refused, and nothing is said twice.
func TestCheckVMITogether(t *testing.T) {
	_, problems := manifest.CheckVMI(field.NewPath("spec"), tree(t, `{
		"domain": {
			"cpu": {"cores": 2, "bogus": 1},
			"devices": {
				"watchdog": {"name": "dog", "i6300esb": {}, "diag288": {"action": "reset"}},
				"disks": [
					{"name": "root", "bootOrder": 1},
					{"name": "seed", "bootOrder": 1},
					{"name": "claim", "lun": {"reservation": true}},
					{"type": "RegistryDisk:v1alpha", "source": {"name": "vmdisks/fedora25"}, "target": {"dev": "vda"}},
					{"type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "data"}}]}},
		"volumes": [
			{"name": "root", "containerDisk": {"image": "x"}},
			{"name": "claim", "nfs": {"server": "x"}},
			{"name": "lonely", "cloudInitNoCloud": {"userData": "#"}}]}`))
	want := `
spec.domain.devices.disks[3].type: RegistryDisk:v1alpha is an old form; give the disk a name, and add a volume of that name with containerDisk.image: vmdisks/fedora25, or run nodevirt convert -f FILE
spec.domain.devices.disks[4].type: PersistentVolumeClaim is an old form; give the disk a name, and add a volume of that name with persistentVolumeClaim.claimName: data, or run nodevirt convert -f FILE
spec.domain.cpu.bogus: unknown field
spec.volumes[1].nfs: unknown field
spec.domain.devices.disks[2].lun.reservation: true: not supported; use false or leave it out: only root can reserve SCSI devices
spec.domain.devices.watchdog.diag288: not supported; only s390x has it; use i6300esb
spec.domain.devices.disks[1].name: Invalid value: "seed": no volume has this name
spec.domain.devices.disks[1].bootOrder: Duplicate value: 1
spec.domain.devices.disks[3].name: Required value
spec.domain.devices.disks[4].name: Required value
spec.domain.memory.guest: Required value: set the size of the VM's memory`
	if diff := cmp.Diff(want, "\n"+sentences(problems)); diff != "" {
		t.Error(diff)
	}
}

// TestPortNames: a name that the API server refuses in a pod is refused with the VM, which would wait for its pod for ever.
func TestPortNames(t *testing.T) {
	for name, good := range map[string]bool{
		"http": true, "a-1": true, "abcdefghijklmno": true, "": true,
		"abcdefghijklmnop": false, "HTTP": false, "-x": false, "80": false, "my_port": false, "web.srv": false, "a--b": false,
	} {
		_, problems := manifest.CheckVMI(field.NewPath("spec"), tree(t, `{
			"domain": {"memory": {"guest": "64Mi"}, "devices": {
				"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"name": "`+name+`", "port": 80}]}]}},
			"networks": [{"name": "default", "pod": {}}]}`))
		if refused := strings.Contains(sentences(problems), "spec.domain.devices.interfaces[0].ports[0].name"); refused == good || good && len(problems) > 0 {
			t.Errorf("port %q: %s", name, sentences(problems))
		}
	}
}

// TestSearchDomains: search domains that no pod may have are refused.
func TestSearchDomains(t *testing.T) {
	for _, domain := range []string{"..", "a..b", "UPPER.example.com", "a b"} {
		_, problems := manifest.CheckVMI(field.NewPath("spec"), tree(t, `{"dnsConfig": {"searches": ["`+domain+`"]},`+machineAndDisk+`}`))
		if !strings.Contains(sentences(problems), "spec.dnsConfig.searches[0]") {
			t.Errorf("search domain %q: %s", domain, sentences(problems))
		}
	}
}
