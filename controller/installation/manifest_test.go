package installation_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
)

// check returns what is wrong with a spec in YAML.
func check(t *testing.T, text string) []string {
	t.Helper()
	text = strings.ReplaceAll(text, "\t", "  ")
	object, err := yaml.ToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &tree); err != nil {
		t.Fatal(err)
	}
	_, problems := installation.CheckManifest(field.NewPath("spec"), tree)
	var all []string
	for _, p := range problems {
		all = append(all, fields.Sentence(p))
	}
	return all
}

func TestCheckManifest(t *testing.T) {
	for name, tt := range map[string]struct {
		spec string
		want []string
	}{
		"KubeVirt's own": {spec: `
			certificateRotateStrategy: {}
			configuration: {developerConfiguration: {featureGates: [], useEmulation: true}}
			customizeComponents: {}
			imagePullPolicy: IfNotPresent
			workloadUpdateStrategy: {workloadUpdateMethods: [LiveMigrate], batchEvictionInterval: 1m0s}`},
		"all of one kind": {spec: `
			configuration:
				cpuRequest: 50m
				evictionStrategy: LiveMigrateIfPossible
				migrations: {parallelMigrationsPerCluster: 9, nodeDrainTaintKey: example.com/drain, bandwidthPerMigration: "0", completionTimeoutPerGiB: 0}
				liveUpdateConfiguration: {maxHotplugRatio: 2, maxCpuSockets: 8, maxGuest: 4Gi}
				developerConfiguration: {memoryOvercommit: 150, nodeSelectors: {disk: fast}, featureGates: [HostDisk, Whatever], disabledFeatureGates: [Sidecar]}
				network: {defaultNetworkInterface: masquerade, permitBridgeInterfaceOnPodNetwork: false}
				permittedHostDevices: {pciHostDevices: [{pciVendorSelector: "10DE:1EB8", resourceName: example.com/gpu, externalResourceProvider: true}]}`},
		"what would have no effect": {
			spec: `
			imageTag: v1
			configuration:
				cpumodel: Haswell
				seccompConfiguration: {}
				developerConfiguration: {memoryOvercommit: 5, disabledFeatureGates: [Snapshot]}
				migrations: {allowPostCopy: true, nodeDrainTaintKey: a b, parallelMigrationsPerCluster: 0}`,
			want: []string{
				"spec.configuration.cpumodel: unknown field",
				`spec.configuration.developerConfiguration.disabledFeatureGates[0]: Unsupported value: "Snapshot": supported values: "HostDisk", "DownwardMetrics", "Sidecar"`,
				"spec.configuration.developerConfiguration.memoryOvercommit: Invalid value: 5: must be from 10 to 10000",
				"spec.configuration.migrations.allowPostCopy: true: not supported; use false or leave it out",
				`spec.configuration.migrations.nodeDrainTaintKey: Invalid value: "a b": must be the key of a taint, such as kubevirt.io/drain`,
				"spec.configuration.migrations.parallelMigrationsPerCluster: Invalid value: 0: must be from 1 to 1000",
				"spec.configuration.seccompConfiguration: not supported; there is no pod of KubeVirt's launcher",
				"spec.imageTag: not supported; the Deployment of nodevirt-controller says it",
			},
		},
		"support containers": {spec: `
			configuration:
				supportContainerResources:
					- {type: vmexport, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "0"}}}`},
		"support containers that are none": {
			spec: `
			configuration:
				supportContainerResources:
					- {type: launcher, resources: {requests: {cpu: much}}}
					- {type: sidecar, resources: {limits: {example.com/gpu: 1, memory: -1}}}`,
			want: []string{
				`spec.configuration.supportContainerResources[0].resources.requests[cpu]: Invalid value: "much": must be a quantity such as 500m, 2, 512Mi or 1.5Gi`,
				`spec.configuration.supportContainerResources[0].type: Unsupported value: "launcher": supported values: "hotplug-disk", "container-disk", "virtiofs", "sidecar", "vmexport", "guest-console-log"`,
				`spec.configuration.supportContainerResources[1].resources.limits[example.com/gpu]: Unsupported value: "example.com/gpu": supported values: "cpu", "memory"`,
				`spec.configuration.supportContainerResources[1].resources.limits[memory]: Invalid value: "-1": must be a quantity such as 500m, 2, 512Mi or 1.5Gi`,
			},
		},
		"CPU models": {spec: `
			configuration: {obsoleteCPUModels: {Penryn: true, Haswell-noTSX: false}}`},
		"CPU models that are none": {
			spec: `
			configuration: {obsoleteCPUModels: {Penryn: "true", "a b": true}}`,
			want: []string{
				`spec.configuration.obsoleteCPUModels[Penryn]: must be true or false, not "true"`,
				`spec.configuration.obsoleteCPUModels[a b]: Invalid value: "a b": write a CPU model of libvirt's, such as Penryn`,
			},
		},
		"network binding plug-ins": {spec: `
			configuration:
				network:
					binding:
						macvtap: {domainAttachmentType: tap, migration: {}}
						l2: {domainAttachmentType: managedTap, networkAttachmentDefinition: plugins/l2, sidecarImage: "example.com/l2:1", computeResourceOverhead: {requests: {memory: 10Mi}}}`},
		"plug-ins that would not work": {
			spec: `
			configuration:
				network:
					binding:
						"a b": {domainAttachmentType: tap}
						passt: {sidecarImage: "example.com/passt:1", networkAttachmentDefinition: passt}
						slirp: {domainAttachmentType: user, downwardAPI: device-info, migration: {method: link-refresh}, computeResourceOverhead: {limits: {cpu: 1}}}`,
			want: []string{
				`spec.configuration.network.binding[a b]: Invalid value: "a b": must match [A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])? and have at most 63 characters`,
				`spec.configuration.network.binding[passt].domainAttachmentType: Required value: tap or managedTap: libvirt is the node's, and a sidecar can't add a network card`,
				"spec.configuration.network.binding[slirp].computeResourceOverhead.limits: not supported; use requests.memory",
				`spec.configuration.network.binding[slirp].domainAttachmentType: Unsupported value: "user": supported values: "tap", "managedTap"`,
				"spec.configuration.network.binding[slirp].downwardAPI: not supported; sidecars get no information of devices",
				"spec.configuration.network.binding[slirp].migration.method: not supported; use migration: {}: a guest that migrates announces its address itself",
			},
		},
		"contradictions": {
			spec: `
			configuration:
				developerConfiguration: {featureGates: [Sidecar], disabledFeatureGates: [Sidecar]}
				permittedHostDevices: {mediatedDevices: [{mdevNameSelector: GRID, resourceName: example.com/grid}]}`,
			want: []string{
				`spec.configuration.developerConfiguration.disabledFeatureGates[0]: Invalid value: "Sidecar": is in featureGates too; remove it from one of them`,
				"spec.configuration.permittedHostDevices.mediatedDevices[0].externalResourceProvider: Required value: must be true: nodevirt has no device plugin; run one for this resource",
			},
		},
	} {
		got := check(t, tt.spec)
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// page is the page that lists the state of each field.
const page = "../../docs/configuration.md"

// notSupported is how a field that has no meaning here is refused.
var notSupported = regexp.MustCompile(`^(?:true: )?not supported(?:; use false or leave it out)?(?:; (.*))?$`)

// TestFields sorts every leaf field of KubeVirt's type: it works, changes nothing, or is refused by its path and with a
// reason. With -update the test writes the page.
func TestFields(t *testing.T) {
	works, harmless := among(installation.Works()), among(installation.Harmless())
	var changes, nothing []string
	refused, n := map[string][]string{}, 0
	for path, of := range fieldstest.Leaves(reflect.TypeFor[kubevirt.KubeVirtSpec]()) {
		switch {
		case works(path):
			changes = append(changes, path)
		case harmless(path):
			nothing = append(nothing, path)
		default:
			why := reason(t, path, of)
			refused[why] = append(refused[why], path)
			n++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nOf %d fields, %d work, %d change nothing, and admission refuses %d.\n\n## Works\n\n```text\n",
		len(changes)+len(nothing)+n, len(changes), len(nothing), n)
	b.WriteString(fieldstest.Block("", changes) + "```\n\n## Changes nothing\n\n```text\n" + fieldstest.Block("", nothing) + "```\n\n## Refused\n\n```text\n")
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		b.WriteString(why + "\n" + fieldstest.Block("  ", refused[why]))
	}
	compare(t, b.String()+"```\n\n")
}

// among returns whether a leaf field is among others.
func among(s fields.Supported) func(string) bool {
	paths := s.Paths("")
	return func(path string) bool { return slices.Contains(paths, path) }
}

// reason returns why a field is refused.
func reason(t *testing.T, path string, of reflect.Type) string {
	t.Helper()
	value := map[reflect.Kind]string{reflect.Bool: "true", reflect.String: `"x"`, reflect.Struct: "{}", reflect.Map: "{}"}[of.Kind()]
	if value == "" {
		value = "1"
	}
	at := "spec." + strings.ReplaceAll(path, "[]", "[0]")
	problems := check(t, fieldstest.JSONAt(path, value))
	for _, p := range problems {
		field, said, _ := strings.Cut(p, ": ")
		if m := notSupported.FindStringSubmatch(said); m != nil && strings.HasPrefix(at, field) && m[1] != "" {
			return m[1]
		}
	}
	t.Errorf("%s is neither among the fields that work nor among those that change nothing, and is not refused with a reason: %q", path, problems)
	return ""
}

func compare(t *testing.T, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`(?s)(<!-- configuration: begin[^>]*-->\n)(.*?)(<!-- configuration: end -->\n)`)
	at := marks.FindSubmatchIndex(text)
	if at == nil {
		t.Fatalf("%s has no marks", page)
	}
	if golden.FlagUpdate() {
		text = slices.Concat(text[:at[4]], []byte(want), text[at[5]:])
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text[at[4]:at[5]])); diff != "" {
		t.Errorf("%s: run with -update: (-code +page)\n%s", page, diff)
	}
}
