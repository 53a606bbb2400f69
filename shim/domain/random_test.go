package domain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirt"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// randomSpecs is how many of each seed the tests make, and leastTaken how many of them admission must take.
	randomSpecs = 500
	randomSeed  = 1
	leastTaken  = 200
)

// TestRandomSpecs makes random specs of the fields that a VM may have. Admission refuses each
// by the path of a field, or the pod, the node and libvirt take it.
func TestRandomSpecs(t *testing.T) {
	// The driver of tests needs no libvirtd, and checks the XML by the schema and as all drivers do.
	conn, err := libvirt.NewConnect("test:///default")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken := 0
	for n := range uint64(randomSpecs) {
		g := generator{rand.New(rand.NewPCG(randomSeed, n))}
		tree := g.spec()
		text, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		spec, problems := manifest.CheckVMI(field.NewPath("spec"), decodedSpec(t, tree))
		for _, p := range problems {
			if !strings.HasPrefix(p.Field, "spec.") {
				t.Errorf("seed %d, spec %d: a refusal without a field: %v", randomSeed, n, p)
			}
		}
		if spec == nil {
			if len(problems) == 0 {
				t.Errorf("seed %d, spec %d: refused without a reason", randomSeed, n)
			}
			continue
		}
		taken++
		if err := defines(conn, spec); err != nil {
			t.Errorf("seed %d, spec %d: admission takes what fails later: %v\n%s", randomSeed, n, err, text)
		}
	}
	t.Logf("admission takes %d of %d", taken, randomSpecs)
	if taken < leastTaken {
		t.Errorf("admission takes %d of %d specs: the test shows little", taken, randomSpecs)
	}
}

func decodedSpec(t *testing.T, tree any) any {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// defines takes a spec through its pod, the node's translation and libvirt.
func defines(conn *libvirt.Connect, spec *kubevirt.VirtualMachineInstanceSpec) error {
	desc, err := describes(spec)
	if err != nil || desc == nil {
		return err
	}
	text, err := XML(*desc)
	if err != nil {
		return err
	}
	dom, err := conn.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	defer dom.Free()
	return dom.Undefine()
}

// generator makes specs.
type generator struct{ *rand.Rand }

// object is a JSON object.
type object = map[string]any

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

// spec returns a spec whose disks, volumes and networks fit together, with random fields.
func (g generator) spec() object {
	devices := object{}
	spec := object{"domain": object{"devices": devices, "memory": object{"guest": pick(g, []string{"64Mi", "128Mi", "1Gi", "2Gi"})}}}
	var disks, volumes []any
	if g.IntN(2) == 0 {
		disks = append(disks, object{"name": "root", "disk": object{}})
		volumes = append(volumes, object{"name": "root", "containerDisk": object{"image": "example.com/root:1"}})
	}
	for i := range g.IntN(5) {
		disk, volume := g.disk(fmt.Sprint("disk", i))
		if disk != nil {
			disks = append(disks, disk)
		}
		volumes = append(volumes, volume)
	}
	if len(volumes) > 0 {
		devices["disks"], spec["volumes"] = disks, volumes
	}
	if disks == nil {
		delete(devices, "disks")
	}
	if g.IntN(2) == 0 {
		g.networks(spec, devices)
	}
	rows := vmspec.Supported().Rows
	for range g.IntN(12) {
		row := rows[g.IntN(len(rows))]
		if value, ok := g.value(row.Takes); ok && !strings.HasPrefix(row.Path, "volumes") && !strings.HasPrefix(row.Path, "networks") {
			g.set(spec, strings.Split(row.Path, "."), value)
		}
	}
	g.complete(spec["domain"].(object))
	return spec
}

// complete adds to most specs what their fields need.
func (g generator) complete(domain object) {
	if g.IntN(8) == 0 {
		return
	}
	devices := domain["devices"].(object)
	for _, name := range []string{"watchdog", "sound"} {
		if device, ok := devices[name].(object); ok && device["name"] == nil {
			device["name"] = name
		}
	}
	if w, ok := devices["watchdog"].(object); ok && w["i6300esb"] == nil {
		w["i6300esb"] = object{}
	}
	if f, ok := domain["firmware"].(object); ok {
		if kernel, ok := f["kernelBoot"].(object); ok {
			kernel["container"] = object{"kernelPath": "/boot/vmlinuz"}
		}
		if loader, ok := f["bootloader"].(object); ok && loader["efi"] != nil {
			delete(loader, "bios")
			domain["features"] = object{"smm": object{}}
		}
	}
	if cpu, ok := domain["cpu"].(object); ok {
		if cpu["dedicatedCpuPlacement"] == true || cpu["numa"] != nil || cpu["realtime"] != nil || cpu["isolateEmulatorThread"] == true {
			cpu["dedicatedCpuPlacement"], cpu["cores"] = true, 2
			domain["memory"].(object)["hugepages"] = object{"pageSize": "2Mi"}
			cpu["numa"] = object{"guestMappingPassthrough": object{}}
			delete(domain, "resources")
		}
	}
}

// disk returns a volume and its disk; some volumes have none.
func (g generator) disk(name string) (disk, volume object) {
	kind := pick(g, []string{
		"containerDisk", "containerDisk", "emptyDisk", "configMap", "secret", "cloudInitNoCloud", "persistentVolumeClaim",
		"ephemeral", "downwardAPI", "serviceAccount", "sysprep", "hostDisk", "downwardMetrics", "cloudInitConfigDrive",
	})
	source := map[string]object{
		"containerDisk": {"image": "example.com/" + name + ":1"}, "emptyDisk": {"capacity": "1Gi"},
		"configMap": {"name": "a"}, "secret": {"secretName": "a"}, "cloudInitNoCloud": {"userData": "#!/bin/sh"},
		"persistentVolumeClaim": {"claimName": pick(g, []string{"block", "file"})},
		"ephemeral":             {"persistentVolumeClaim": object{"claimName": "file"}},
		"downwardAPI":           {"fields": []any{object{"path": "labels", "fieldRef": object{"fieldPath": "metadata.labels"}}}},
		"serviceAccount":        {"serviceAccountName": "a"}, "sysprep": {"configMap": object{"name": "a"}},
		"hostDisk": {"path": "/srv/disk.img", "type": "Disk"}, "downwardMetrics": {},
		"cloudInitConfigDrive": {"userData": "#!/bin/sh"},
	}[kind]
	volume = object{"name": name, kind: source}
	as := pick(g, []string{"disk", "disk", "disk", "cdrom"})
	if source["claimName"] == "block" && g.IntN(2) == 0 {
		as = "lun"
	}
	device := object{}
	if g.IntN(2) == 0 && kind != "downwardMetrics" {
		device["bus"] = pick(g, map[string][]string{
			"disk": {"virtio", "sata", "scsi", "usb"}, "cdrom": {"sata", "scsi"}, "lun": {"scsi"},
		}[as])
	}
	return object{"name": name, as: device}, volume
}

func (g generator) networks(spec, devices object) {
	var cards, networks []any
	for i := range 1 + g.IntN(3) {
		name, source, binding := fmt.Sprint("net", i), object{"multus": object{"networkName": fmt.Sprint("n", i)}}, "bridge"
		if i == 0 {
			source, binding = object{"pod": object{}}, pick(g, []string{"bridge", "masquerade"})
		}
		card := object{"name": name, binding: object{}}
		if g.IntN(2) == 0 {
			card["model"] = pick(g, []string{"virtio", "e1000", "e1000e", "rtl8139", "virtio-transitional"})
		}
		cards, networks = append(cards, card), append(networks, source)
		source["name"] = name
	}
	devices["interfaces"], spec["networks"] = cards, networks
}

// candidates are values of fields. The refusal of one lists the values of an enumeration.
func (g generator) candidates() []any {
	return []any{
		true, false, object{},
		int64(0), int64(1), int64(2), int64(3), int64(4), int64(16), int64(512), int64(4096), int64(9000),
		"a", "b-1", "Nehalem", "avx2", "aes", "0000:05:00.0", "0000:00:1f.7", "02:00:00:00:00:01", "1Gi", "64Mi", "500m",
		"5d307ca9-b3ef-428c-8861-06e72d69f223", "/boot/vmlinuz", "console=ttyS0", "example.com/kernel:1", "pc", "pc-q35-7.2",
		"pc-i440fx-7.2", "10.1.0.0/24", "fd10:1::/120", "Europe/Berlin", "0-1", "host-model", "host-passthrough", "2Mi",
	}
}

// quoted finds the values that a refusal lists.
var quoted = regexp.MustCompile(`"([^"]+)"`)

// value returns a value that a row takes; false if no candidate is one.
func (g generator) value(takes fields.Takes) (any, bool) {
	all := g.candidates()
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, candidate := range all {
		problem := takes(field.NewPath("x"), candidate)
		if problem == nil {
			return candidate, true
		}
		if problem.Type != field.ErrorTypeNotSupported {
			continue
		}
		if values := quoted.FindAllStringSubmatch(problem.Detail, -1); len(values) > 0 {
			return pick(g, values)[1], true
		}
	}
	return nil, false
}

// set sets a field below an object. Of a list it sets that of a random element, and makes an
// element only if elements need not fit to others.
func (g generator) set(at object, steps []string, value any) {
	name, isList := strings.CutSuffix(steps[0], "[]")
	if !isList {
		if len(steps) == 1 {
			if _, has := at[name]; !has {
				at[name] = value
			}
			return
		}
		below, ok := at[name].(object)
		if !ok {
			below = object{}
			at[name] = below
		}
		g.set(below, steps[1:], value)
		return
	}
	list, _ := at[name].([]any)
	if len(list) == 0 {
		if slices.Contains([]string{"disks", "interfaces", "filesystems", "volumes", "networks", "accessCredentials"}, name) {
			return
		}
		list = []any{object{"name": "a" + fmt.Sprint(g.IntN(3))}}
		if name == "panicDevices" {
			list = []any{object{}}
		}
		at[name] = list
	}
	if element, ok := pick(g, list).(object); ok && len(steps) > 1 {
		g.set(element, steps[1:], value)
	}
}
