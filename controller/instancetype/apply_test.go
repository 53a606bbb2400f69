package instancetype_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// parse reads YAML strictly; "" is nil.
func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	if text == "" {
		return nil
	}
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

func types(t *testing.T, of, preference string) instancetype.Types {
	t.Helper()
	var types instancetype.Types
	if types.Instancetype = parse[spec](t, of); types.Instancetype != nil {
		_, problems := instancetype.CheckType(field.NewPath("spec"), tree(t, of))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	if types.Preference = parse[preferences](t, preference); types.Preference != nil {
		_, problems := instancetype.CheckPreference(field.NewPath("spec"), tree(t, preference))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	return types
}

func tree(t *testing.T, text string) any {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestApply(t *testing.T) {
	const small = `{cpu: {guest: 1}, memory: {guest: 128Mi}}`
	for _, tt := range []struct {
		name, of, preference, template, want string
	}{
		{"nothing", "", "", `{spec: {domain: {memory: {guest: 64Mi}}}}`, `{spec: {domain: {memory: {guest: 64Mi}}}}`},
		{
			"an instance type", `{cpu: {guest: 4, model: host-model}, memory: {guest: 1000Mi, overcommitPercent: 25},
				nodeSelector: {a: b}, schedulerName: mine, annotations: {x: w}}`, "",
			`{metadata: {annotations: {z: "1"}}}`,
			`{metadata: {annotations: {x: w, z: "1"}}, spec: {nodeSelector: {a: b}, schedulerName: mine, domain: {
				cpu: {sockets: 4, cores: 1, threads: 1, model: host-model}, memory: {guest: 1000Mi},
				resources: {requests: {memory: 750Mi}}}}}`,
		},
		{
			"maximums", `{cpu: {guest: 2, maxSockets: 8}, memory: {guest: 1Gi, maxGuest: 4Gi}}`, "", `{}`,
			`{spec: {domain: {cpu: {sockets: 2, cores: 1, threads: 1, maxSockets: 8}, memory: {guest: 1Gi, maxGuest: 4Gi}}}}`,
		},
		{
			"devices of the node", `{cpu: {guest: 1}, memory: {guest: 1Gi}, gpus: [{name: gpu, deviceName: example.com/gpu}],
				hostDevices: [{name: card, deviceName: example.com/card, tag: a}]}`, "", `{}`,
			`{spec: {domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1Gi}, devices: {
				gpus: [{name: gpu, deviceName: example.com/gpu}], hostDevices: [{name: card, deviceName: example.com/card, tag: a}]}}}}`,
		},
		{
			"dedicated CPUs", `{cpu: {guest: 2, dedicatedCPUPlacement: true, isolateEmulatorThread: true, numa: {guestMappingPassthrough: {}}, realtime: {mask: "0"}},
				memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, ioThreadsPolicy: auto}`, `{firmware: {preferredUseBiosSerial: true},
				devices: {preferredUseVirtioTransitional: true, preferredSoundModel: ac97, preferredAutoattachPodInterface: false}}`,
			`{spec: {domain: {firmware: {bootloader: {bios: {}}}, devices: {sound: {name: card}}}}}`,
			`{spec: {domain: {cpu: {sockets: 2, cores: 1, threads: 1, dedicatedCpuPlacement: true, isolateEmulatorThread: true,
				numa: {guestMappingPassthrough: {}}, realtime: {mask: "0"}}, memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, ioThreadsPolicy: auto,
				firmware: {bootloader: {bios: {useSerial: true}}}, devices: {useVirtioTransitional: true, sound: {name: card, model: ac97}, autoattachPodInterface: false}}}}`,
		},
		{
			"a preference for Windows", "", `{
				features: {preferredAcpi: {enabled: false}, preferredKvm: {hidden: true}, preferredHyperv: {
					relaxed: {}, vapic: {enabled: false}, spinlocks: {spinlocks: 8191}}},
				clock: {preferredClockOffset: {timezone: Europe/Berlin}, preferredTimer: {hyperv: {}, hpet: {present: true}}}}`,
			`{spec: {domain: {features: {hyperv: {vapic: {enabled: true}}}, clock: {timer: {hpet: {present: false}}}}}}`,
			`{spec: {domain: {
				features: {acpi: {enabled: false}, kvm: {hidden: true}, hyperv: {
					relaxed: {}, vapic: {enabled: true}, spinlocks: {spinlocks: 8191}}},
				clock: {timezone: Europe/Berlin, timer: {hyperv: {}, hpet: {present: false}}}}}}`,
		},
		{
			"a preference", "", `{
				annotations: {x: theirs, z: theirs},
				cpu: {preferredCPUFeatures: [{name: a, policy: require}, {name: b}]},
				devices: {preferredAutoattachGraphicsDevice: true, preferredAutoattachMemBalloon: false,
					preferredCdromBus: scsi, preferredDiskBus: virtio, preferredDiskCache: none, preferredDiskIO: native,
					preferredInterfaceModel: e1000, preferredInterfaceMasquerade: {}, preferredRng: {},
					preferredNetworkInterfaceMultiQueue: true},
				firmware: {preferredUseBios: true}, machine: {preferredMachineType: pc},
				preferredArchitecture: amd64, preferredSubdomain: sub, preferredTerminationGracePeriodSeconds: 7}`,
			`{metadata: {annotations: {x: own}}, spec: {
				domain: {cpu: {features: [{name: a, policy: disable}]}, devices: {
					disks: [{name: cd, cdrom: {}}, {name: sata, disk: {bus: sata}, io: threads}],
					interfaces: [{name: pod}, {name: other}]}},
				networks: [{name: pod, pod: {}}, {name: other, multus: {networkName: net}}],
				volumes: [{name: cd}, {name: sata}, {name: third}]}}`,
			`{metadata: {annotations: {x: own, z: theirs}}, spec: {
				architecture: amd64, subdomain: sub, terminationGracePeriodSeconds: 7,
				domain: {cpu: {features: [{name: a, policy: disable}, {name: b}]}, machine: {type: pc},
					firmware: {bootloader: {bios: {}}},
					devices: {autoattachGraphicsDevice: true, autoattachMemBalloon: false, rng: {},
						networkInterfaceMultiqueue: true,
						disks: [{name: cd, cdrom: {bus: scsi}}, {name: sata, disk: {bus: sata}, io: threads, cache: none},
							{name: third, disk: {bus: virtio}, io: native, cache: none}],
						interfaces: [{name: pod, model: e1000, masquerade: {}}, {name: other, model: e1000}]}},
				networks: [{name: pod, pod: {}}, {name: other, multus: {networkName: net}}],
				volumes: [{name: cd}, {name: sata}, {name: third}]}}`,
		},
		{
			"the card that nothing is said of", "", `{devices: {preferredInterfaceModel: e1000}}`, `{}`,
			`{spec: {domain: {devices: {interfaces: [{name: default, bridge: {}, model: e1000}]}}, networks: [{name: default, pod: {}}]}}`,
		},
		{
			"a card of a network binding plug-in", "", `{devices: {preferredInterfaceMasquerade: {}}}`,
			`{spec: {domain: {devices: {interfaces: [{name: pod, binding: {name: l2}}]}}, networks: [{name: pod, pod: {}}]}}`,
			`{spec: {domain: {devices: {interfaces: [{name: pod, binding: {name: l2}}]}}, networks: [{name: pod, pod: {}}]}}`,
		},
		{
			"no card", "", `{devices: {preferredAutoattachPodInterface: false}}`, `{}`,
			`{spec: {domain: {devices: {autoattachPodInterface: false}}}}`,
		},
		{
			"firmware", "", `{firmware: {preferredEfi: {secureBoot: true}}, features: {preferredSmm: {}}, devices: {preferredTPM: {}, preferredAutoattachPodInterface: false}}`,
			`{}`, `{spec: {domain: {firmware: {bootloader: {efi: {secureBoot: true}}}, features: {smm: {}}, devices: {tpm: {}, autoattachPodInterface: false}}}}`,
		},
		{
			"old names of firmware", "", `{firmware: {preferredUseEfi: true, preferredUseSecureBoot: false}}`,
			`{}`, `{spec: {domain: {firmware: {bootloader: {efi: {secureBoot: false}}}}}}`,
		},
		{
			"firmware that the VM chose", "", `{firmware: {preferredEfi: {}}, features: {preferredSmm: {}}, devices: {preferredTPM: {}, preferredAutoattachPodInterface: false}}`,
			`{spec: {domain: {firmware: {bootloader: {bios: {}}}, features: {smm: {enabled: false}}, devices: {tpm: {enabled: false}}}}}`,
			`{spec: {domain: {firmware: {bootloader: {bios: {}}}, features: {smm: {enabled: false}}, devices: {tpm: {enabled: false}, autoattachPodInterface: false}}}}`,
		},
		{
			"both", small, `{requirements: {cpu: {guest: 1}, memory: {guest: 128Mi}}}`, `{}`,
			`{spec: {domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 128Mi}}}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			template := parse[kubevirt.VirtualMachineInstanceTemplateSpec](t, tt.template)
			if problems := types(t, tt.of, tt.preference).Apply(field.NewPath("t"), template); len(problems) > 0 {
				t.Fatal(problems)
			}
			want := parse[kubevirt.VirtualMachineInstanceTemplateSpec](t, tt.want)
			if diff := cmp.Diff(shown(t, want), shown(t, template)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func shown(t *testing.T, template *kubevirt.VirtualMachineInstanceTemplateSpec) string {
	t.Helper()
	text, err := yaml.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTopology(t *testing.T) {
	for _, tt := range []struct {
		cpus, preference string
		want             string // sockets, cores, threads
	}{
		{"6", `{}`, "6 1 1"},
		{"6", `{cpu: {preferredCPUTopology: sockets}}`, "6 1 1"},
		{"6", `{cpu: {preferredCPUTopology: preferAny}}`, "6 1 1"},
		{"6", `{cpu: {preferredCPUTopology: cores}}`, "1 6 1"},
		{"6", `{cpu: {preferredCPUTopology: preferThreads}}`, "1 1 6"},
		{"6", `{cpu: {preferredCPUTopology: spread}}`, "3 2 1"},
		{"1", `{cpu: {preferredCPUTopology: spread}}`, "1 1 1"},
		{"6", `{cpu: {preferredCPUTopology: preferSpread}, preferSpreadSocketToCoreRatio: 3}`, "2 3 1"},
		{"6", `{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}}`, "1 3 2"},
		{"12", `{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads, ratio: 3}}}`, "2 3 2"},
		{"5", `{cpu: {preferredCPUTopology: spread}}`, "spec.instancetype: 5 vCPUs provided by the instance type " +
			"can't be spread over SocketsCores with the ratio of 2 provided by the preference"},
		{"6", `{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads}}}`,
			"spec.instancetype: 6 vCPUs provided by the instance type " +
				"can't be spread over SocketsCoresThreads with the ratio of 2 provided by the preference"},
	} {
		template := new(kubevirt.VirtualMachineInstanceTemplateSpec)
		problems := types(t, `{cpu: {guest: `+tt.cpus+`}, memory: {guest: 64Mi}}`, tt.preference).Apply(field.NewPath("t"), template)
		got := sentences(problems)
		if cpu := template.Spec.Domain.CPU; cpu != nil {
			got = strings.Join([]string{num(cpu.Sockets), num(cpu.Cores), num(cpu.Threads)}, " ")
		}
		if got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.cpus, tt.preference, got, tt.want)
		}
	}
}

func TestProblems(t *testing.T) {
	const large = `{cpu: {guest: 4, model: Haswell}, memory: {guest: 2Gi}, nodeSelector: {a: b}, schedulerName: mine, annotations: {x: w}}`
	for _, tt := range []struct {
		name, of, preference, template, want string
	}{
		{
			"all that conflicts", large, "", `{metadata: {annotations: {x: z}}, spec: {nodeSelector: {}, schedulerName: theirs, domain: {
				cpu: {sockets: 1, cores: 1, threads: 1, model: host-model}, memory: {},
				resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}}}`,
			`VM field(s) spec.template.spec.domain.cpu.sockets conflicts with selected instance type
VM field(s) spec.template.spec.domain.cpu.cores conflicts with selected instance type
VM field(s) spec.template.spec.domain.cpu.threads conflicts with selected instance type
VM field(s) spec.template.spec.domain.memory conflicts with selected instance type
VM field(s) spec.template.spec.domain.resources.requests.cpu conflicts with selected instance type
VM field(s) spec.template.spec.domain.resources.limits.cpu conflicts with selected instance type
VM field(s) spec.template.spec.domain.resources.requests.memory conflicts with selected instance type
VM field(s) spec.template.spec.domain.resources.limits.memory conflicts with selected instance type
VM field(s) spec.template.spec.domain.cpu.model conflicts with selected instance type
VM field(s) spec.template.spec.nodeSelector conflicts with selected instance type
VM field(s) spec.template.spec.schedulerName conflicts with selected instance type
VM field(s) spec.template.metadata.annotations[x] conflicts with selected instance type`,
		},
		{
			"devices of the node", `{cpu: {guest: 1}, memory: {guest: 1Gi}, gpus: [{name: gpu, deviceName: example.com/gpu}],
				hostDevices: [{name: card, deviceName: example.com/card}]}`, "",
			`{spec: {domain: {devices: {gpus: [{name: own, deviceName: example.com/gpu}], hostDevices: [{name: own, deviceName: example.com/card}]}}}}`,
			`VM field(s) spec.template.spec.domain.devices.gpus conflicts with selected instance type
VM field(s) spec.template.spec.domain.devices.hostDevices conflicts with selected instance type`,
		},
		{"what does not conflict", large, "", `{metadata: {annotations: {x: w}}, spec: {domain: {cpu: {features: [{name: a}]}}}}`, ""},
		{
			"too small a type", large, `{requirements: {cpu: {guest: 8}, memory: {guest: 4Gi}}}`, `{}`,
			`spec.instancetype: failure checking preference requirements: insufficient CPU resources of 4 vCPU provided by instance type, preference requires 8 vCPU
spec.instancetype: failure checking preference requirements: insufficient Memory resources of 2Gi provided by instance type, preference requires 4Gi`,
		},
		{
			"too small a VM", "", `{requirements: {cpu: {guest: 8}, memory: {guest: 4Gi}}}`,
			`{spec: {domain: {cpu: {sockets: 2, cores: 2}, resources: {requests: {memory: 1Gi}}}}}`,
			`spec.template.spec.domain.cpu: failure checking preference requirements: insufficient CPU resources of 4 vCPU provided by VirtualMachine, preference requires 8 vCPU
spec.template.spec.domain.memory: failure checking preference requirements: insufficient Memory resources of 1Gi provided by VirtualMachine, preference requires 4Gi`,
		},
		{
			"a VM that is large enough", "", `{requirements: {cpu: {guest: 2}, memory: {guest: 1Gi}}}`,
			`{spec: {domain: {cpu: {cores: 2}, memory: {guest: 1Gi}}}}`, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			template := parse[kubevirt.VirtualMachineInstanceTemplateSpec](t, tt.template)
			problems := types(t, tt.of, tt.preference).Apply(field.NewPath("spec", "template"), template)
			if diff := cmp.Diff(tt.want, sentences(problems)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
