package vmspec_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// badVMIs are refused as early as RunPodSandbox. Errors are without the
// annotation's name.
var badVMIs = []struct{ name, vmi, want string }{
	{"empty", ``, `spec: not JSON at byte 0: unexpected end of JSON input`},
	{"not JSON", `{"domain": {,}`, `spec: not JSON at byte 13: invalid character ',' looking for beginning of object key string`},
	{"trailing text", `{} {}`, `spec: not JSON at byte 4: invalid character '{' after top-level value`},
	{"no object", `[]`, `spec: must be an object, not []`},
	{"null", `null`, `spec: must be an object, not null`},
	{"unknown field", least(`"cpus": 2`, `"disk": []`), `spec.domain.cpus: unknown field
spec.domain.devices.disk: unknown field`},
	{"wrong case", least(`"CPU": {"cores": 2}`, ``), `spec.domain.CPU: unknown field`},
	{"duplicate field", least(`"cpu": {"cores": 1, "cores": 2}`, ``), `spec.domain.cpu.cores: duplicate field`},
	{"key with a dot", `{"domain.cpu": {}, "volumes": []}`, `spec.domain.cpu: unknown field`},
	{"wrong types", least(`"cpu": {"cores": "2", "threads": 1.5, "model": 5},
		"memory": {"guest": true}, "resources": []`, `"rng": true, "interfaces": {}`), `spec.domain.cpu.cores: must be a whole number, not "2"
spec.domain.cpu.model: must be a string, not 5
spec.domain.cpu.threads: must be a whole number, not 1.5
spec.domain.devices.interfaces: must be a list, not {}
spec.domain.devices.rng: must be an object, not true
spec.domain.memory.guest: must be a quantity, not true
spec.domain.resources: must be an object, not []`},
	{"control characters in a key", `{"a\u001b[2J": 1}`, `spec.a�[2J: unknown field`},
	{"long key", `{"` + strings.Repeat("k", 10_000) + `": 1}`, "spec." + strings.Repeat("k", 251) + "…: unknown field"},
	{"two encryptions", least(`"launchSecurity": {"snp": {}, "tdx": {}}`, ``), `spec.domain.launchSecurity: One and only one launchSecurity type can be set`},
	{"no encryption", least(`"launchSecurity": {}`, ``), `spec.domain.launchSecurity: One and only one launchSecurity type can be set`},
	{"SEV without UEFI", least(`"launchSecurity": {"sev": {}}`, ``), `spec.domain.launchSecurity: SEV requires OVMF (UEFI)`},
	{"SEV's session", least(`"launchSecurity": {"sev": {"session": "no base64!"}}`, ``),
		`spec.domain.launchSecurity.sev.session: Invalid value: "no base64!": must match [A-Za-z0-9+/]+={0,2} and have at most 8192 characters`},
	{"SEV's contradictions", least(`"launchSecurity": {"sev": {}}, "firmware": {"bootloader": {"efi": {}}}, "cpu": {"maxSockets": 4},
		"memory": {"guest": "1Gi", "maxGuest": "2Gi"}`, `"useVirtioTransitional": true, "interfaces": [{"name": "default", "bridge": {}, "bootOrder": 2}]`),
		`spec.domain.devices.interfaces[0].name: Invalid value: "default": no network has this name
spec.domain.launchSecurity: SEV does not work along with SecureBoot; set firmware.bootloader.efi.secureBoot to false
spec.domain.devices.interfaces[0].bootOrder: SEV does not work with bootable NICs: default
spec.domain.devices.useVirtioTransitional: SEV requires virtio 1.0, which keeps devices off encrypted memory
spec.domain.memory.maxGuest: a guest with SEV gets its memory when it starts
spec.domain.cpu.maxSockets: a guest with SEV gets its vCPUs when it starts`},
	{"TDX's contradictions", least(`"launchSecurity": {"tdx": {}}, "firmware": {"bootloader": {"efi": {"persistent": true}}}, "features": {"smm": {}}`, ``),
		`spec.domain.launchSecurity: TDX does not work along with Persistent EFI variables
spec.domain.launchSecurity: TDX does not work along with SMM`},
	{"attestation", least(`"launchSecurity": {"sev": {"attestation": {}}}, "firmware": {"bootloader": {"efi": {"secureBoot": false}}}`, ``),
		`spec.domain.launchSecurity.sev.attestation: not supported; a VM's start waits for no session; set sev.session`},
	{"unsupported", `{"nodeSelector": {"a": "b"}, "livenessProbe": {},
		"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false, "persistent": 1}}},
			"resources": {"limits": {"nvidia.com/gpu": 1}}, "memory": {"hugepages": {"pageSize": "64Ki"}},
			"devices": {"disks": [{"name": "a", "disk": {}}, {"name": "b", "lun": {"reservation": true}, "blockSize": {"custom": {"discardGranularity": 512}}}],
				"interfaces": [{"name": "default", "slirp": {}, "state": "gone"}],
				"tpm": {"persistent": 1}}},
		"networks": [{"name": "default", "multus": {"networkName": "x", "default": true}}],
		"volumes": [{"name": "a", "cloudInitConfigDrive": {"userData": "x"}}, {"name": "b", "downwardMetrics": {}},
			{"name": "c", "dataVolume": {"name": "x"}}, {"name": "d", "cloudInitNoCloud": {"secretRef": {"name": "x"}}}]}`,
		`spec.domain.devices.disks[1].blockSize.custom.discardGranularity: not supported; libvirt before 11.6 can't set it
spec.domain.devices.disks[1].lun.reservation: true: not supported; use false or leave it out: only root can reserve SCSI devices
spec.domain.devices.interfaces[0].slirp: not supported; KubeVirt has removed it; use masquerade
spec.domain.devices.interfaces[0].state: Unsupported value: "gone": supported values: "up", "down", "absent"
spec.domain.devices.tpm.persistent: must be true or false, not 1
spec.domain.firmware.bootloader.efi.persistent: must be true or false, not 1
spec.domain.memory.hugepages.pageSize: Unsupported value: "64Ki": supported values: "2Mi", "1Gi"
spec.domain.resources.limits.nvidia.com/gpu: not supported
spec.livenessProbe: not supported
spec.nodeSelector: not supported
spec.volumes[2].dataVolume: not supported`},
	{"slow quantity", `{"domain": {"devices": {}, "memory": {"maxGuest": "1.11111111111111111111e999999999"}}}`,
		`spec.domain.memory.maxGuest: Invalid value: "1.11111111111111111111e999999999": must be a quantity such as 500m, 2, 512Mi or 1.5Gi`},
	{"maximums below the start", least(`"cpu": {"sockets": 4, "cores": 2, "maxSockets": 3}, "memory": {"guest": "1Gi", "maxGuest": "1000Mi"}`, ``),
		`spec.domain.cpu.maxSockets: Invalid value: 3: less than sockets, 4
spec.domain.memory.maxGuest: Invalid value: "1000Mi": less than the guest's memory, 1Gi`},
	{"maximums beyond a VM", least(`"cpu": {"cores": 61, "maxSockets": 4}, "memory": {"guest": "1Gi", "maxGuest": "17Ti"}`, ``),
		`spec.domain.cpu.maxSockets: Invalid value: 4: maxSockets × cores × threads makes 244 vCPUs; a VM has at most 240
spec.domain.memory.maxGuest: Invalid value: "17Ti": 18691697672192 bytes are too much for a guest; give it at most 16384 GiB`},
	{"maximums of what is given at the start", least(`"cpu": {"cores": 2, "maxSockets": 4, "dedicatedCpuPlacement": true},
		"memory": {"guest": "1Gi", "maxGuest": "2Gi", "hugepages": {"pageSize": "2Mi"}}`, ``),
		`spec.domain.cpu.maxSockets: a VM with dedicatedCpuPlacement gets its CPUs when it starts
spec.domain.memory.maxGuest: a VM with hugepages gets its memory when it starts`},
	{"maximums and limits", least(`"cpu": {"maxSockets": 4}, "memory": {"guest": "1Gi", "maxGuest": "2Gi"},
		"resources": {"limits": {"cpu": 2, "memory": "2Gi"}}`, ``),
		`spec.domain.resources.limits.cpu: with maxSockets the limit of the VM's container follows the VM's size; remove one of them
spec.domain.resources.limits.memory: with maxGuest the limit of the VM's container follows the VM's size; remove one of them`},
	{"maximums without ACPI", least(`"features": {"acpi": {"enabled": false}}, "cpu": {"maxSockets": 4}, "memory": {"guest": "1Gi", "maxGuest": "2Gi"}`, ``),
		`spec.domain.cpu.maxSockets: requires ACPI, which features.acpi.enabled turns off
spec.domain.memory.maxGuest: requires ACPI, which features.acpi.enabled turns off`},
	{"values", `{"hostname": "Db.example.com", "terminationGracePeriodSeconds": -1,
		"domain": {"cpu": {"cores": 241, "model": "a b", "features": [{"name": "AES", "policy": "maybe"}]},
			"machine": {"type": "pc-q35-7.2,accel=kvm"}, "memory": {"guest": "1e999999999"},
			"resources": {"requests": {"cpu": "-1"}, "limits": {"memory": "0"}},
			"firmware": {"uuid": "1", "serial": " a", "kernelBoot": {"kernelArgs": "a\nb",
				"container": {"kernelPath": "/boot/../../etc/shadow", "initrdPath": "boot/initrd"}}},
			"devices": {"disks": [{"name": "A_b", "disk": {"bus": "ide"}, "bootOrder": 0, "serial": "ü", "cache": "unsafe"}],
				"interfaces": [{"name": "a b", "model": "ne2k_pci", "macAddress": "01:00:00:00:00:01"}]}},
		"volumes": [{"name": "-", "containerDisk": {"image": "a", "path": "/disk/../etc", "imagePullPolicy": "Maybe"}}]}`,
		`spec.domain.cpu.cores: Invalid value: 241: must be from 0 to 240
spec.domain.cpu.features[0].name: Invalid value: "AES": must match [a-z0-9][a-z0-9_.-]* and have at most 64 characters
spec.domain.cpu.features[0].policy: Unsupported value: "maybe": supported values: "force", "require", "optional", "disable", "forbid"
spec.domain.cpu.model: Invalid value: "a b": must match [A-Za-z0-9][A-Za-z0-9_.-]* and have at most 64 characters
spec.domain.devices.disks[0].bootOrder: Invalid value: 0: must be from 1 to 65536
spec.domain.devices.disks[0].cache: Unsupported value: "unsafe": supported values: "none", "writethrough", "writeback"
spec.domain.devices.disks[0].disk.bus: Unsupported value: "ide": supported values: "virtio", "sata", "scsi", "usb"
spec.domain.devices.disks[0].name: Invalid value: "A_b": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[0].serial: Invalid value: "ü": must match [A-Za-z0-9_.+-]+ and have at most 36 characters
spec.domain.devices.interfaces[0].macAddress: Invalid value: "01:00:00:00:00:01": must be a unicast MAC address such as 02:00:00:00:00:01
spec.domain.devices.interfaces[0].model: Unsupported value: "ne2k_pci": supported values: "virtio", "virtio-transitional", "e1000", "e1000e", "rtl8139"
spec.domain.devices.interfaces[0].name: Invalid value: "a b": must match [A-Za-z0-9_-]+ and have at most 63 characters
spec.domain.firmware.kernelBoot.container.initrdPath: Invalid value: "boot/initrd": must be an absolute path to a file without relative components
spec.domain.firmware.kernelBoot.container.kernelPath: Invalid value: "/boot/../../etc/shadow": must be an absolute path to a file without relative components
spec.domain.firmware.kernelBoot.kernelArgs: Invalid value: "a b": must be one line of at most 2047 bytes
spec.domain.firmware.serial: Invalid value: " a": must match [!-~]([ -~]*[!-~])? and have at most 64 characters
spec.domain.firmware.uuid: Invalid value: "1": must match [0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12} and have at most 36 characters
spec.domain.machine.type: Invalid value: "pc-q35-7.2,accel=kvm": must match q35|pc|virt|(pc-q35|pc-i440fx|virt)-[a-z0-9][a-z0-9._-]* and have at most 40 characters
spec.domain.memory.guest: Invalid value: "1e999999999": must be a quantity such as 500m, 2, 512Mi or 1.5Gi
spec.domain.resources.limits.memory: Invalid value: "0": must be a quantity greater than 0
… and 6 more problems`},
	{"missing", `{"domain": {"cpu": {"features": [{}, {"name": "aes"}, {"name": "aes"}]},
			"firmware": {"kernelBoot": {"kernelArgs": "a"}}, "devices": {"disks": [null, {"name": "b"}], "interfaces": [{}]}},
		"networks": [{}], "volumes": [{}]}`, `spec.domain.cpu.features[0].name: Required value
spec.domain.cpu.features[2].name: Duplicate value: "aes"
spec.domain.firmware.kernelBoot.container must be defined with at least one of the following: kernelPath, initrdPath
spec.volumes[0].name: Required value
spec.volumes[0]: Required value: cloudInitConfigDrive, cloudInitNoCloud, configMap, containerDisk, containerPath, dataVolume, downwardAPI, downwardMetrics, emptyDisk, ephemeral, hostDisk, memoryDump, persistentVolumeClaim, secret, serviceAccount or sysprep
spec.domain.devices.disks[0].name: Required value
spec.domain.devices.disks[1].name: Invalid value: "b": no volume has this name
spec.networks[0].name: Required value
spec.domain.devices.interfaces[0].name: Required value`},
	{"ranges of ports", networks(`{"name": "a", "masquerade": {}, "ports": [{"port": 80}], "portRanges": [{"protocol": "TCP", "start": 9, "end": 8}, {"start": 1, "end": 2},
		{"protocol": "TCP", "start": 10, "end": 20}, {"protocol": "UDP", "start": 20, "end": 30}, {"protocol": "TCP", "start": 20, "end": 20}]},
		{"name": "b", "bridge": {}, "portRanges": [{"protocol": "TCP", "start": 1, "end": 2}]}, {"name": "c", "sriov": {}, "portRanges": [{"protocol": "TCP", "start": 1, "end": 2}]}`,
		`{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "x"}}, {"name": "c", "multus": {"networkName": "x"}}`),
		`spec.domain.devices.interfaces[0].portRanges: goes without ports: use one of them
spec.domain.devices.interfaces[0].portRanges[0].end: Invalid value: 8: less than start, 9
spec.domain.devices.interfaces[0].portRanges[1]: Required value: protocol, start and end
spec.domain.devices.interfaces[0].portRanges[4]: overlaps another range
spec.domain.devices.interfaces[1].portRanges: goes with masquerade: a bridged guest has all ports
spec.domain.devices.interfaces[2].portRanges: goes with masquerade: the device has all ports`},
	{"options of DHCP", networks(`{"name": "a", "bridge": {}, "dhcpOptions": {"privateOptions": [{"option": 224, "value": "a"}, {"option": 224, "value": "b"}, {}, {"option": 254}]}},
		{"name": "b", "sriov": {}, "dhcpOptions": {"bootFileName": "a"}}`,
		`{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "x"}}`), `spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[1].option: Duplicate value: 224
spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[2].option: Required value
spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[3].value: Required value
spec.domain.devices.interfaces[1].dhcpOptions: the device's network has its own DHCP server`},
	{"plug-ins", networks(`{"name": "a", "binding": {}}, {"name": "b", "binding": {"name": "x"}, "bridge": {}, "portRanges": [{"protocol": "TCP", "start": 1, "end": 2}],
			"dhcpOptions": {"bootFileName": "a"}}, {"name": "c", "binding": {"name": "x"}, "sriov": {}}, {"name": "d", "binding": {"name": "a b"}}`,
		`{"name": "a", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}, {"name": "b", "multus": {"networkName": "x"}}, {"name": "c", "multus": {"networkName": "x"}},
			{"name": "d", "multus": {"networkName": "x"}}`),
		`spec.domain.devices.interfaces[3].binding.name: Invalid value: "a b": must match [A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])? and have at most 63 characters`},
	{"plug-ins beside other things", networks(`{"name": "a", "binding": {"name": "x"}}, {"name": "b", "binding": {"name": "x"}, "bridge": {},
			"portRanges": [{"protocol": "TCP", "start": 1, "end": 2}], "dhcpOptions": {"bootFileName": "a"}}, {"name": "c", "binding": {"name": "x"}, "sriov": {}}`,
		`{"name": "a", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}, {"name": "b", "multus": {"networkName": "x"}}, {"name": "c", "multus": {"networkName": "x"}}`),
		`spec.domain.devices.interfaces[0]: the network's vmNetworkCIDR goes with masquerade
spec.domain.devices.interfaces[1]: an interface has one binding, not that of a plug-in and another
spec.domain.devices.interfaces[1].portRanges: goes with masquerade: the guest has all ports
spec.domain.devices.interfaces[1].dhcpOptions: the plug-in gives the guest its addresses
spec.domain.devices.interfaces[2]: an interface has one binding, not sriov and another`},
	{"disks on USB", `{"domain": {"devices": {"clientPassthrough": {}, "inputs": [{"name": "mouse"}], "disks": [
			{"name": "a", "disk": {"bus": "usb"}, "serial": "0123456789-0123456789-0123456789", "blockSize": {"custom": {"logical": 512, "physical": 512}}}, {"name": "b", "disk": {"bus": "usb"}, "dedicatedIOThread": true},
			{"name": "c", "disk": {"bus": "usb"}}, {"name": "d", "disk": {"bus": "usb"}}, {"name": "e", "disk": {"bus": "usb"}},
			{"name": "f", "disk": {"bus": "usb"}}, {"name": "g", "disk": {"bus": "usb"}}, {"name": "h", "disk": {"bus": "usb"}}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "emptyDisk": {"capacity": 1}}, {"name": "c", "emptyDisk": {"capacity": 1}},
			{"name": "d", "emptyDisk": {"capacity": 1}}, {"name": "e", "emptyDisk": {"capacity": 1}}, {"name": "f", "emptyDisk": {"capacity": 1}},
			{"name": "g", "emptyDisk": {"capacity": 1}}, {"name": "h", "emptyDisk": {"capacity": 1}}]}`,
		`spec.domain.devices.disks[0].serial: Invalid value: "0123456789-0123456789-0123456789": a disk on bus usb has at most 20 characters of it
spec.domain.devices.disks[0].blockSize.custom: goes with bus virtio, scsi or sata: a disk on bus usb has blocks of 512 bytes
spec.domain.devices.disks[1].dedicatedIOThread: goes with bus virtio
spec.domain.devices.disks: its disks, inputs and clientPassthrough are 13 USB devices; a VM with disks on bus usb has at most 12`},
	{"a disk and a card first", networks(`{"name": "a", "bootOrder": 1}, {"name": "b", "bootOrder": 1}`,
		`{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "x"}}`), `spec.domain.devices.interfaces[1].bootOrder: Duplicate value: 1`},
	{"names that don't meet", `{"domain": {"devices": {
			"disks": [{"name": "a", "bootOrder": 1}, {"name": "a", "bootOrder": 1}, {"name": "b"}],
			"interfaces": [{"name": "x"}]}}, "networks": [{"name": "y", "pod": {}}],
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "c", "cloudInitNoCloud": {}}]}`, `spec.domain.devices.disks[1].name: Duplicate value: "a"
spec.domain.devices.disks[1].bootOrder: Duplicate value: 1
spec.domain.devices.disks[2].name: Invalid value: "b": no volume has this name
spec.domain.devices.interfaces[0].name: Invalid value: "x": no network has this name
spec.networks[0]: no interface has the name "y"; add one to spec.domain.devices.interfaces`},
	{"two of a kind", `{"domain": {"devices": {"disks": [{"name": "a", "disk": {}, "cdrom": {}}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "containerDisk": {"image": "b"}},
			{"name": "c", "cloudInitNoCloud": {"userData": "a", "userDataBase64": "YQ=="}},
			{"name": "d", "cloudInitNoCloud": {}}, {"name": "a", "containerDisk": {"image": "a"}, "cloudInitNoCloud": {}}]}`, `spec.volumes[2].cloudInitNoCloud.userDataBase64: userData is given too; use one of them
spec.volumes[3].cloudInitNoCloud: one cloud-init volume per VM is supported
spec.volumes[4].name: Duplicate value: "a"
spec.volumes[4]: cloudInitNoCloud and containerDisk: use one of them
spec.domain.devices.disks[0]: disk and cdrom: use one of them`},
	{"nine interfaces", least(``, `"interfaces": [{}`+strings.Repeat(`,{}`, 8)+`]`), `spec.domain.devices.interfaces: Too many: 9: must have at most 8 items`},
	{"default networks", networks(`{"name": "a", "bridge": {}}, {"name": "b", "sriov": {}}, {"name": "c", "bridge": {}}`,
		`{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "x", "default": true}}, {"name": "c", "multus": {"default": true}}`),
		`spec.networks[1].multus.default: networks[0] is the pod's network already
spec.networks[2].multus.networkName: Required value
spec.domain.devices.interfaces[1].sriov: goes with a network of multus or of a resourceClaim`},
	{"networks", networks(`{"name": "a", "bridge": {}, "ports": [{"port": 80}]}, {"name": "b", "masquerade": {}, "ports": [{"name": "x"}]},
			{"name": "c", "bridge": {}, "masquerade": {}}, {"name": "d", "bridge": {}}`,
		`{"name": "a", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}, {"name": "b", "multus": {"networkName": "x"}},
			{"name": "c", "pod": {}}, {"name": "d", "multus": {}, "pod": {}}, {"name": "d", "multus": {}}`),
		`spec.networks[2].pod: networks[0] is the pod's network already
spec.networks[3]: a network is either the pod's or one of Multus
spec.networks[4].multus.networkName: Required value
spec.networks[4].name: Duplicate value: "d"
spec.domain.devices.interfaces[0].ports: goes with masquerade: a bridged guest has all ports
spec.domain.devices.interfaces[0]: the network's vmNetworkCIDR goes with masquerade: a bridged guest has the pod's address
spec.domain.devices.interfaces[1].masquerade: goes with the pod's network; use bridge
spec.domain.devices.interfaces[1].ports[0].port: Required value
spec.domain.devices.interfaces[2]: an interface has one binding, not bridge and masquerade`},
	{"network values", networks(`{"name": "a", "masquerade": {}, "ports": [{"port": 0, "protocol": "ICMP"}, {"port": 65536}]}`,
		`{"name": "a", "pod": {"vmNetworkCIDR": "fd00::/64", "vmIPv6NetworkCIDR": "fd00::/127"}}, {"name": "b", "multus": {"networkName": "../x"}}`),
		`spec.domain.devices.interfaces[0].ports[0].port: Invalid value: 0: must be from 1 to 65535
spec.domain.devices.interfaces[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP"
spec.domain.devices.interfaces[0].ports[1].port: Invalid value: 65536: must be from 1 to 65535
spec.networks[0].pod.vmIPv6NetworkCIDR: Invalid value: "fd00::/127": must be an IPv6 network with a length from 64 to 126
spec.networks[0].pod.vmNetworkCIDR: Invalid value: "fd00::/64": must be an IPv4 network with a length from 8 to 30
spec.networks[1].multus.networkName: Invalid value: "../x": must match ([a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]* and have at most 317 characters`},
	{"too many disks", `{"domain": {"devices": {"disks": [{}` + strings.Repeat(`,{}`, vmspec.MaxDisks) + `]}}}`, `spec.domain.devices.disks: Too many: 65: must have at most 64 items`},
	{"path outside of the image", `{"domain": {"devices": {"disks": [{"name": "a"}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a", "path": "/disk/../../shadow"}}]}`, `spec.volumes[0].containerDisk.path: Invalid value: "/disk/../../shadow": must be an absolute path to a file without relative components`},
	{"base64", `{"domain": {"devices": {"disks": [{"name": "a"}, {"name": "b"}]}}, "volumes": [
		{"name": "a", "containerDisk": {"image": "a"}},
		{"name": "b", "cloudInitNoCloud": {"userDataBase64": "_", "networkDataBase64": "/w=="}}]}`, `spec.volumes[1].cloudInitNoCloud.userDataBase64: must be base64: illegal base64 data at input byte 0
spec.volumes[1].cloudInitNoCloud.networkDataBase64: must hold UTF-8 text, not binary data`},
	{"seed without quotes", `{"domain": {"devices": {"disks": [{"name": "a"}, {"name": "b"}]}}, "volumes": [
		{"name": "a", "containerDisk": {"image": "a"}},
		{"name": "b", "cloudInitNoCloud": {"userData": {"password": "secret"}, "networkDataBase64": ["secret"]}}]}`, `spec.volumes[1].cloudInitNoCloud.networkDataBase64: must be a string, not a list
spec.volumes[1].cloudInitNoCloud.userData: must be a string, not an object`},
	{"long serial", `{"domain": {"devices": {"disks": [{"name": "a", "disk": {"bus": "virtio"}, "serial": "123456789012345678901"}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}]}`, `spec.domain.devices.disks[0].serial: Invalid value: "123456789012345678901": a disk on bus virtio has at most 20 characters of it`},
	{"disks that contradict themselves", `{"domain": {"devices": {"disks": [
			{"name": "a", "io": "native", "cache": "writeback", "serial": "S"},
			{"name": "b", "shareable": true, "serial": "S", "cdrom": {"readonly": false}, "errorPolicy": "retry"}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "emptyDisk": {"capacity": 0}}]}`, `spec.domain.devices.disks[1].cdrom.readonly: false: not supported; use true or leave it out
spec.domain.devices.disks[1].errorPolicy: Unsupported value: "retry": supported values: "stop", "report", "ignore", "enospace"
spec.volumes[1].emptyDisk.capacity: Invalid value: "0": must be a quantity greater than 0`},
	{"disks that contradict each other", `{"domain": {"devices": {"disks": [
			{"name": "a", "io": "native", "cache": "writeback", "serial": "S"}, {"name": "b", "shareable": true, "serial": "S"}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "emptyDisk": {}}]}`, `spec.volumes[1].emptyDisk.capacity: Required value
spec.domain.devices.disks[0].io: Invalid value: "native": goes past the node's cache, and cache is writeback; use threads, or cache none
spec.domain.devices.disks[1].shareable: what a VM writes to such a volume is its own, and no other's to share; leave it out
spec.domain.devices.disks[1].serial: Duplicate value: "S"`},
	{"disks that no volume allows", `{"domain": {"devices": {"disks": [
			{"name": "a", "lun": {}}, {"name": "b", "disk": {}}, {"name": "c", "lun": {}, "disk": {}}, {"name": "e", "lun": {}, "serial": "E"}, {"name": "d", "disk": {"bus": "sata", "readonly": true}}]}},
		"volumes": [{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "b", "readOnly": true}},
			{"name": "c", "persistentVolumeClaim": {"claimName": ""}}, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
			{"name": "e", "persistentVolumeClaim": {"claimName": "e"}}, {"name": "f", "ephemeral": {}}, {"name": "g", "ephemeral": {"persistentVolumeClaim": {}}}]}`,
		`spec.volumes[2].persistentVolumeClaim.claimName: Required value: the name of a PVC
spec.volumes[5].ephemeral.persistentVolumeClaim.claimName: Required value: the name of a PVC
spec.volumes[6].ephemeral.persistentVolumeClaim.claimName: Required value: the name of a PVC
spec.domain.devices.disks[0].lun: needs a PVC of volumeMode Block; use disk
spec.domain.devices.disks[1].disk.bus: a read-only disk on bus sata must be a cdrom; use virtio or scsi
spec.domain.devices.disks[2]: lun and another device: use one of them
spec.domain.devices.disks[3].serial: a lun has the serial number of its device; leave it out
spec.domain.devices.disks[4].disk.bus: a read-only disk on bus sata must be a cdrom; use virtio or scsi`},
	{"too many vCPUs", least(`"cpu": {"cores": 240, "sockets": 240, "threads": 240}`, ``), `spec.domain.cpu: sockets × cores × threads makes 13824000 vCPUs; a VM has at most 240`},
	{"too many vCPUs by limit", least(`"resources": {"limits": {"cpu": "300"}}`, ``), `spec.domain.resources.limits.cpu: Invalid value: "300": a VM has at most 240 vCPUs`},
	{"little memory", least(`"memory": {"guest": "976Ki"}`, ``), `spec.domain.memory.guest: Invalid value: "976Ki": 999424 bytes are too little for a VM: must be greater than or equal to 1M`},
	{"devices", `{"domain": {"devices": {"inputs": [{}, {"name": "a"}, {"name": "a"}], "watchdog": {"i6300esb": {}},
		"disks": [{"name": "root", "disk": {"bus": "sata", "pciAddress": "0000:01:00.0"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "a"}}]}`, `spec.domain.devices.disks[0].disk.pciAddress: goes with bus virtio
spec.domain.devices.inputs[0].name: Required value
spec.domain.devices.inputs[2].name: Duplicate value: "a"
spec.domain.devices.watchdog.name: Required value`},
	{"access credentials", `{"domain": {}, "volumes": [{"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
			{"name": "access-credential-6", "cloudInitNoCloud": {"userData": "x"}}],
		"accessCredentials": [{}, {"sshPublicKey": {}, "userPassword": {}},
			{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"noCloud": {}, "configDrive": {}}}},
			{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"configDrive": {}}}},
			{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"qemuGuestAgent": {}}}},
			{"userPassword": {}},
			{"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"noCloud": {}}}}]}`,
		`spec.volumes[1].cloudInitNoCloud: one cloud-init volume per VM is supported
spec.accessCredentials[0]: Required value: sshPublicKey or userPassword
spec.accessCredentials[1]: sshPublicKey and userPassword: use one of them
spec.accessCredentials[1].sshPublicKey.source.secret.secretName: Required value
spec.accessCredentials[1].sshPublicKey.propagationMethod: Required value: configDrive, noCloud or qemuGuestAgent
spec.accessCredentials[2].sshPublicKey.propagationMethod: use one of configDrive, noCloud and qemuGuestAgent
spec.accessCredentials[3].sshPublicKey.propagationMethod: configDrive requires a volume of kind cloudInitConfigDrive; add one
spec.accessCredentials[4].sshPublicKey.propagationMethod.qemuGuestAgent.users: Required value: the users that the keys are for
spec.accessCredentials[5].userPassword.source.secret.secretName: Required value
spec.accessCredentials[5].userPassword.propagationMethod.qemuGuestAgent: Required value
spec.volumes[1]: the volume of spec.accessCredentials[6] has the name access-credential-6, too; rename this one`},
	{"names in access credentials", `{"domain": {}, "accessCredentials": [
			{"sshPublicKey": {"source": {"secret": {"secretName": "../a"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["a b", "../a"]}}}}]}`,
		`spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users[0]: Invalid value: "a b": must match [A-Za-z0-9_][A-Za-z0-9_.@$-]* and have at most 63 characters
spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users[1]: Invalid value: "../a": must match [A-Za-z0-9_][A-Za-z0-9_.@$-]* and have at most 63 characters
spec.accessCredentials[0].sshPublicKey.source.secret.secretName: Invalid value: "../a": must be DNS labels with dots between them, at most 253 characters`},
	{"a watchdog of no model", `{"domain": {"devices": {"watchdog": {"name": "dog"}}}}`, `spec.domain.devices.watchdog.i6300esb: Required value: the only model`},
	{"much memory", least(`"memory": {"guest": "999999999999T"}`, ``), `spec.domain.memory.guest: Invalid value: "999999999999T": must be a quantity of at most 1125899906842624`},
	{"requests above limits", least(`"resources": {"requests": {"cpu": 3, "memory": "2Gi"},
		"limits": {"cpu": 2, "memory": "1Gi"}}`, ``), `spec.domain.resources.requests.cpu: Invalid value: "3": larger than limits.cpu, 2
spec.domain.resources.requests.memory: Invalid value: "2Gi": larger than limits.memory, 1Gi`},
	{"secure boot without SMM", least(`"firmware": {"bootloader": {"efi": {}}}`, ``), `spec.domain: has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled; enable features.smm, or set secureBoot to false`},
	{"SMM disabled", least(`"features": {"smm": {"enabled": false}}, "firmware": {"bootloader": {"efi": {"secureBoot": true}}}`, ``), `spec.domain: has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled; enable features.smm, or set secureBoot to false`},
	{"SMM of another machine", least(`"machine": {"type": "pc-i440fx-7.2"}, "features": {"smm": {}}, "firmware": {"bootloader": {"efi": {}}}`, ``), `spec.domain.machine.type: Invalid value: "pc-i440fx-7.2": features.smm requires a machine of type q35`},
	{"a machine of another architecture", least(`"machine": {"type": "virt"}`, ``), `spec.domain.machine.type: Invalid value: "virt": is no machine of architecture amd64`},
	{"what guests of arm64 do not have", `{"architecture": "arm64", "domain": {
		"firmware": {"bootloader": {"efi": {"secureBoot": true}}}, "features": {"smm": {}, "hyperv": {"vpindex": {}}},
		"cpu": {"model": "Nehalem", "maxSockets": 2}, "clock": {"utc": {}, "timer": {"hpet": {}}},
		"devices": {"disks": [{"name": "root", "disk": {"bus": "sata"}}, {"name": "cd", "cdrom": {"bus": "sata"}}],
			"watchdog": {"name": "dog", "i6300esb": {}}, "sound": {"name": "s"}, "video": {"type": "vga"}, "panicDevices": [{"model": "isa"}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/guest:1"}}]}`, `spec.domain.firmware.bootloader.efi.secureBoot: architecture arm64 does not support it; use false
spec.domain.cpu.model: architecture arm64 does not support it; use host-passthrough
spec.domain.cpu.maxSockets: architecture arm64 does not support it; leave it out
spec.domain.devices.disks[0]: architecture arm64 does not support it; use bus virtio or scsi
spec.domain.devices.disks[1]: architecture arm64 does not support it; use bus virtio or scsi
spec.domain.devices.watchdog: architecture arm64 does not support it; leave it out
spec.domain.devices.sound: architecture arm64 does not support it; leave it out
spec.domain.devices.video.type: architecture arm64 does not support it; use virtio or ramfb
spec.domain.devices.panicDevices: architecture arm64 does not support it; leave it out
spec.domain.features.smm: architecture arm64 does not support it; leave it out
spec.domain.features: architecture arm64 does not support it; leave out hyperv, hypervPassthrough, kvm, pvspinlock and apic.endOfInterrupt
spec.domain.clock.timer: architecture arm64 does not support it; leave it out`},
	{"a BIOS of arm64", `{"architecture": "arm64", "domain": {"machine": {"type": "virt-7.2"}, "firmware": {"bootloader": {"bios": {}}}}}`,
		`spec.domain.firmware.bootloader.bios: architecture arm64 does not support it; use efi`},
	{"serial BIOS, video and sound", least(`"firmware": {"bootloader": {"bios": {"useSerial": true}}}`, `"autoattachSerialConsole": false, "autoattachGraphicsDevice": false,
		"video": {}, "sound": {}, "interfaces": [{"name": "a", "acpiIndex": 1}, {"name": "b", "acpiIndex": 1}]`), `spec.domain.firmware.bootloader.bios.useSerial: requires autoattachSerialConsole
spec.domain.devices.interfaces[0].name: Invalid value: "a": no network has this name
spec.domain.devices.interfaces[1].name: Invalid value: "b": no network has this name
spec.domain.devices.interfaces[1].acpiIndex: Duplicate value: 1
spec.domain.devices.video: requires autoattachGraphicsDevice
spec.domain.devices.sound.name: Required value`},
	{"host devices", `{"resourceClaims": [{"name": "a"}, {"name": "b", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, {"name": "c", "resourceClaimName": "c"}, {"name": "c", "resourceClaimName": "d"}],
		"domain": {"devices": {
			"gpus": [{"name": "g"}, {"name": "g", "deviceName": "a.com/b", "claimName": "c", "requestName": "r"},
				{"name": "h", "claimName": "none", "requestName": "r"}, {"name": "i", "claimName": "c"}, {"name": "j", "requestName": "r"},
				{"name": "k", "deviceName": "a.com/b", "virtualGPUOptions": {"display": {"enabled": true}}}],
			"hostDevices": [{"deviceName": "a.com/b"}, {"name": "l", "claimName": "c", "requestName": "r"}, {"name": "m", "claimName": "c", "requestName": "r"}]}}}`,
		`spec.resourceClaims[0].resourceClaimName: Required value: or resourceClaimTemplateName
spec.resourceClaims[1]: a ResourceClaim has either resourceClaimName or resourceClaimTemplateName
spec.resourceClaims[3].name: Duplicate value: "c"
spec.domain.devices.gpus[0].deviceName: Required value: or claimName and requestName
spec.domain.devices.gpus[1].name: Duplicate value: "g"
spec.domain.devices.gpus[1]: a device has either deviceName or claimName
spec.domain.devices.gpus[2].claimName: Invalid value: "none": resourceClaims has no entry of this name
spec.domain.devices.gpus[3].requestName: Required value
spec.domain.devices.gpus[4].claimName: Required value
spec.domain.devices.gpus[5].virtualGPUOptions.display.enabled: requires autoattachGraphicsDevice
spec.domain.devices.hostDevices[0].name: Required value
spec.domain.devices.hostDevices[2].requestName: another device has request "r" of this ResourceClaim`},
	{"names of host devices", `{"domain": {"devices": {"gpus": [{"name": "g", "deviceName": "gpu"}, {"name": "h", "deviceName": "requests.kubernetes.io/gpu"}, {"name": "i/j", "deviceName": "a.com/b"}]}}}`,
		`spec.domain.devices.gpus[0].deviceName: Invalid value: "gpu": must be the resource of a device plug-in, such as example.com/gpu
spec.domain.devices.gpus[1].deviceName: Invalid value: "requests.kubernetes.io/gpu": must be the resource of a device plug-in, such as example.com/gpu
spec.domain.devices.gpus[2].name: Invalid value: "i/j": must match [A-Za-z0-9_-]+ and have at most 63 characters`},
	{"SR-IOV", `{"resourceClaims": [{"name": "c", "resourceClaimName": "c"}], "domain": {"devices": {"interfaces": [
			{"name": "pod", "sriov": {}}, {"name": "net", "sriov": {}, "bridge": {}, "ports": [{"port": 1}], "state": "down", "acpiIndex": 1, "bootOrder": 1},
			{"name": "claim", "sriov": {}, "macAddress": "02:00:00:00:00:01", "bootOrder": 1}, {"name": "other", "bridge": {}}, {"name": "none", "sriov": {}}]}},
		"networks": [{"name": "pod", "pod": {}}, {"name": "net", "multus": {"networkName": "a"}}, {"name": "claim", "resourceClaim": {"claimName": "d", "requestName": "r"}},
			{"name": "other", "multus": {"networkName": "a"}, "resourceClaim": {"claimName": "c", "requestName": "r"}}]}`,
		`spec.networks[3]: a network of a resourceClaim has no other kind
spec.domain.devices.interfaces[0].sriov: goes with a network of multus or of a resourceClaim
spec.domain.devices.interfaces[1]: an interface has one binding, not sriov and another
spec.domain.devices.interfaces[1].ports: goes with masquerade: the device has all ports
spec.domain.devices.interfaces[1].state: the device's link is not the VM's to change
spec.domain.devices.interfaces[1].acpiIndex: a device of the node has none; use pciAddress
spec.domain.devices.interfaces[2].bootOrder: Duplicate value: 1
spec.domain.devices.interfaces[2].macAddress: the ResourceClaim's driver sets the address
spec.domain.devices.interfaces[4].name: Invalid value: "none": no network has this name
spec.networks[2].resourceClaim.claimName: Invalid value: "d": resourceClaims has no entry of this name`},
	{"processors without dedicated ones", least(`"cpu": {"cores": 2, "isolateEmulatorThread": true, "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0-2"}}`, ``),
		`spec.domain.cpu.isolateEmulatorThread: requires dedicatedCpuPlacement
spec.domain.cpu.numa.guestMappingPassthrough: requires dedicatedCpuPlacement and memory.hugepages
spec.domain.cpu.realtime: requires dedicatedCpuPlacement and numa.guestMappingPassthrough
spec.domain.cpu.realtime.mask: Invalid value: "0-2": the vCPUs are 0 to 1`},
	{"dedicated processors", least(`"cpu": {"threads": 3, "dedicatedCpuPlacement": true},
		"resources": {"requests": {"cpu": "2500m", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}`, ``),
		`spec.domain.resources.requests.cpu: Invalid value: "2500m": must be the number of vCPUs, 3, with dedicatedCpuPlacement
spec.domain.resources.requests.memory: Invalid value: "1Gi": must equal limits.memory, 2Gi, with dedicatedCpuPlacement
spec.domain.cpu.threads: Invalid value: 3: must be at most 2 with dedicatedCpuPlacement`},
	{"no number of dedicated processors", least(`"cpu": {"dedicatedCpuPlacement": true}`, ``),
		`spec.domain.cpu.cores: Required value: or resources.requests.cpu, with dedicatedCpuPlacement`},
	{"a part of a huge page", least(`"memory": {"guest": "1.5Gi", "hugepages": {"pageSize": "1Gi"}}`, ``),
		`spec.domain.memory.guest: Invalid value: "1536Mi": is not a multiple of the page size, 1Gi`},
	{"two boot loaders, no ACPI", least(`"features": {"acpi": {"enabled": false}}, "firmware": {"bootloader": {"bios": {}, "efi": {"secureBoot": false}}}`, ``), `spec.domain.firmware.bootloader: has both EFI and BIOS configured, but they are mutually exclusive
spec.domain.features.acpi: efi requires ACPI; enable it`},
	{"no ACPI table", least(`"firmware": {"acpi": {}}`, ``), `spec.domain.firmware.acpi: ACPI was set but no SLIC nor MSDM volume reference was set`},
	{"bad ACPI tables", least(`"firmware": {"acpi": {"slicNameRef": "root", "msdmNameRef": "missing"}}`, ``), `spec.domain.firmware.acpi.slicNameRef: Invalid value: "root": refers to Volume of unsupported type; use a secret
spec.domain.firmware.acpi.msdmNameRef: Invalid value: "missing": does not have a matching Volume`},
	{"kernel path without kernel", least(`"firmware": {"kernelBoot": {"container": {"initrdPath": "/initrd"}}}`, ``), `spec.domain.firmware.kernelBoot.container.kernelPath: Required value: kernelArgs and initrdPath go with a kernel`},
	{"many problems", `{"volumes": [` + strings.TrimPrefix(strings.Repeat(`, {"name": "a_"}`, 16), ",") +
		`], "domain": {"devices": {"disks": [` + strings.TrimPrefix(strings.Repeat(`, {"name": "a_"}`, 16), ",") + `]}}}`, `spec.domain.devices.disks[0].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[1].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[2].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[3].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[4].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[5].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[6].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[7].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[8].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[9].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[10].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[11].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[12].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[13].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[14].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.domain.devices.disks[15].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.volumes[0].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.volumes[1].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.volumes[2].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
spec.volumes[3].name: Invalid value: "a_": must be a DNS label: a-z, 0-9 and - inside, at most 63 characters
… and 12 more problems`},
}

func TestBadVMI(t *testing.T) {
	for _, tt := range slices.Concat(badVMIs, badDisks) {
		t.Run(tt.name, func(t *testing.T) {
			err := vmspec.ValidateSandbox(pod(vmi(tt.vmi)))
			if err == nil {
				t.Fatal("no error")
			}
			var lines []string
			for line := range strings.Lines(err.Error()) {
				lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "nodevirt.io/vmi: "))
			}
			if diff := cmp.Diff(tt.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			_, again := vmspec.FromCRI(pod(vmi(tt.vmi)), container(nil))
			if again == nil || again.Error() != err.Error() {
				t.Errorf("FromCRI says otherwise: %v", again)
			}
		})
	}
}

// TestTooMuchToSchedule: requests that no node can meet are accepted before there is a container, since
// the pod's status says that none can, and refused by a node.
func TestTooMuchToSchedule(t *testing.T) {
	var spec kubevirt.VirtualMachineInstanceSpec
	text := `{"domain": {"devices": {}, "resources": {"requests": {"memory": "1Ei", "cpu": "1M"}}}}`
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	if _, problems := vmspec.DecodeVMI([]byte(text)); len(problems) > 0 {
		t.Errorf("the fields: %v", problems)
	}
	if made, problems := vmspec.Preview(field.NewPath("spec"), &spec); len(problems) > 0 || made.CPU.Sockets != vmspec.MaxVCPUs {
		t.Errorf("before the pod: %+v, %v", made.CPU, problems)
	}
	_, err := vmspec.FromCRI(pod(vmi(text)), container(nil))
	for _, want := range []string{"requests.cpu: Invalid value: \"1M\"", "requests.memory: Invalid value: \"1Ei\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a node says %v, want %s", err, want)
		}
	}
}

func TestBadAnnotations(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"unknown", map[string]string{"nodevirt.io/vmis": "", "nodevirt.io/": ""}, `annotation nodevirt.io/: unknown; known are nodevirt.io/cloud-init-meta-data, nodevirt.io/cloud-init-network-config, nodevirt.io/cloud-init-user-data, nodevirt.io/blank-disks, nodevirt.io/copied-volumes, nodevirt.io/disk-mode, nodevirt.io/disk-origin, nodevirt.io/downward-metrics, nodevirt.io/imported-disks, nodevirt.io/migration, nodevirt.io/network-bindings, nodevirt.io/network-disks, nodevirt.io/preallocated-volumes, nodevirt.io/ssh-authorized-keys, nodevirt.io/vm-container, nodevirt.io/vmi
annotation nodevirt.io/vmis: unknown; known are nodevirt.io/cloud-init-meta-data, nodevirt.io/cloud-init-network-config, nodevirt.io/cloud-init-user-data, nodevirt.io/blank-disks, nodevirt.io/copied-volumes, nodevirt.io/disk-mode, nodevirt.io/disk-origin, nodevirt.io/downward-metrics, nodevirt.io/imported-disks, nodevirt.io/migration, nodevirt.io/network-bindings, nodevirt.io/network-disks, nodevirt.io/preallocated-volumes, nodevirt.io/ssh-authorized-keys, nodevirt.io/vm-container, nodevirt.io/vmi`},
		{"copies without a migration", map[string]string{vmspec.AnnotationCopiedVolumes: "a"}, `nodevirt.io/copied-volumes: only a pod with the annotation nodevirt.io/migration waits for a guest`},
		{"copies twice", map[string]string{vmspec.AnnotationMigration: "m", vmspec.AnnotationCopiedVolumes: "a,,a"}, `nodevirt.io/copied-volumes: "": write the names of volumes, each once
nodevirt.io/copied-volumes: "a": write the names of volumes, each once`},
		{"not text", map[string]string{vmspec.AnnotationUserData: "\xff"}, `nodevirt.io/cloud-init-user-data: not UTF-8 text`},
		{"container", map[string]string{vmspec.AnnotationVMContainer: "A b"}, `nodevirt.io/vm-container: "A b" is not a container's name`},
		{"Ignition", map[string]string{"kubevirt.io/ignitiondata": "\xff"}, `annotation kubevirt.io/ignitiondata: at most 262144 bytes of UTF-8 text are allowed`},
		{"size", map[string]string{vmspec.AnnotationUserData: strings.Repeat("a", 256<<10)}, `annotations under nodevirt.io/: 262176 bytes; at most 262144 are allowed`},
		{"meta data syntax", map[string]string{vmspec.AnnotationMetaData: "a: [b"}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: line 1: did not find expected ',' or ']'`},
		{"meta data type", map[string]string{vmspec.AnnotationMetaData: "- a"}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: unmarshal errors:   line 1: cannot unmarshal !!seq into map[string]interface {}`},
		{"meta data list of items", map[string]string{vmspec.AnnotationMetaData: "- {key: a, value: b}"}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: unmarshal errors:   line 1: cannot unmarshal !!seq into map[string]interface {}`},
		{"meta data nested twice", map[string]string{vmspec.AnnotationMetaData: `{"a": {"b": 1, "b": 2}}`}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: unmarshal errors:   line 1: key "b" already set in map`},
		{"meta data key", map[string]string{vmspec.AnnotationMetaData: "1: a"}, `nodevirt.io/cloud-init-meta-data: the key 1 is not a string`},
		{"meta data twice", map[string]string{vmspec.AnnotationMetaData: "a: 1\na: 2"}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: unmarshal errors:   line 2: key "a" already set in map`},
		{"instance id", map[string]string{vmspec.AnnotationMetaData: "instance-id: [a]"}, `nodevirt.io/cloud-init-meta-data: instance-id: must be one line of text`},
		{"host name", map[string]string{vmspec.AnnotationMetaData: `local-hostname: "a\nb"`}, `nodevirt.io/cloud-init-meta-data: local-hostname: must be one line of text`},
		{"aliases", map[string]string{vmspec.AnnotationMetaData: "a: &a " + strings.Repeat("a", 100_000) +
			"\nb: [*a, *a, *a]\n"}, `nodevirt.io/cloud-init-meta-data: larger than 262144 bytes when written out`},
		{"deep", map[string]string{vmspec.AnnotationMetaData: strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000)},
			`nodevirt.io/cloud-init-meta-data: larger than 262144 bytes when written out`},
		{"keys", map[string]string{vmspec.AnnotationSSHKeys: "ssh-rsa AAAA\n/root/.ssh/id_rsa.pub\n-----BEGIN KEY-----"}, `nodevirt.io/ssh-authorized-keys: line 2 is not a public key as in authorized_keys
nodevirt.io/ssh-authorized-keys: line 3 is not a public key as in authorized_keys`},
		{"no key", map[string]string{vmspec.AnnotationSSHKeys: "# none\n"}, `nodevirt.io/ssh-authorized-keys: holds no key; remove it or add one`},
		{"disk mode", map[string]string{vmspec.AnnotationDiskMode: "copy"}, `nodevirt.io/disk-mode: "copy" is no disk mode; there are file, raw, iscsi`},
		{"no disk mode", map[string]string{vmspec.AnnotationDiskMode: ""}, `nodevirt.io/disk-mode: "" is no disk mode; there are file, raw, iscsi`},
		{"disk modes", map[string]string{vmspec.AnnotationDiskMode: "raw,file,a=raw,a=file,=raw,b,c=\x00,"}, `nodevirt.io/disk-mode: a second mode for all disks, file, beside raw
nodevirt.io/disk-mode: disk "a" has a mode already
nodevirt.io/disk-mode: "=raw" names no disk: write DISK=MODE, or MODE alone for all disks
nodevirt.io/disk-mode: "b" is no disk mode; there are file, raw, iscsi
nodevirt.io/disk-mode: "�" is no disk mode; there are file, raw, iscsi
nodevirt.io/disk-mode: "" is no disk mode; there are file, raw, iscsi`},
		{"many disk modes", map[string]string{vmspec.AnnotationDiskMode: strings.Repeat("raw,", 64)}, `nodevirt.io/disk-mode: 65 entries; at most 64 are allowed`},
		{"imports", map[string]string{vmspec.AnnotationImports: "a,../b,a,"}, `nodevirt.io/imported-disks: "../b" is no import's name
nodevirt.io/imported-disks: "a" is listed twice
nodevirt.io/imported-disks: "" is no import's name`},
		{"many imports", map[string]string{vmspec.AnnotationImports: strings.Repeat("a,", 16)}, `nodevirt.io/imported-disks: 17 disks; at most 16 are allowed`},
		{"disk mode of another disk", with(vmi(least(``, ``)), vmspec.AnnotationDiskMode, "disk=raw"), `nodevirt.io/disk-mode: "disk" is no registry disk of this VM, which has ["root"]`},
		{"user data twice", with(vmi(`{"domain": {"devices": {"disks": [{"name": "a"}, {"name": "b"}]}}, "volumes": [
			{"name": "a", "containerDisk": {"image": "a"}}, {"name": "b", "cloudInitNoCloud": {"userData": "a"}}]}`),
			vmspec.AnnotationUserData, "b"), `nodevirt.io/cloud-init-user-data: the VMI's cloudInitNoCloud volume has this too; use one of them`},
		{"two of cloud-init", vmi(`{"domain": {"devices": {"disks": [{"name": "a"}]}}, "volumes": [
			{"name": "a", "cloudInitConfigDrive": {"userData": "a"}}, {"name": "b", "cloudInitNoCloud": {"userData": "a"}}]}`),
			`nodevirt.io/vmi: spec.volumes[1].cloudInitNoCloud: one cloud-init volume per VM is supported`},
		{"fields of volumes with files", vmi(`{"domain": {"devices": {}}, "volumes": [{"name": "b", "secret": {"secretName": "../a", "volumeLabel": " x"}},
			{"name": "c", "downwardAPI": {"fields": [{"path": "../a"}, {"path": "a/../b"}, {"path": "c", "resourceFieldRef": {"resource": "limits.cpu", "divisor": 3}}]}}]}`),
			`nodevirt.io/vmi: spec.volumes[0].secret.secretName: Invalid value: "../a": must be DNS labels with dots between them, at most 253 characters
nodevirt.io/vmi: spec.volumes[0].secret.volumeLabel: Invalid value: " x": must match [!-~]([ -~]*[!-~])? and have at most 32 characters
nodevirt.io/vmi: spec.volumes[1].downwardAPI.fields[0].path: Invalid value: "../a": must be a relative path of at most 253 characters, without . and ..
nodevirt.io/vmi: spec.volumes[1].downwardAPI.fields[1].path: Invalid value: "a/../b": must be a relative path of at most 253 characters, without . and ..
nodevirt.io/vmi: spec.volumes[1].downwardAPI.fields[2].resourceFieldRef.divisor: Invalid value: "3": must match 0|1([mkMGTPE]|[KMGTPE]i)? and have at most 3 characters`},
		{"volumes with no files", vmi(`{"domain": {"devices": {}}, "volumes": [{"name": "a", "configMap": {}}, {"name": "b", "secret": {}},
			{"name": "c", "downwardAPI": {"fields": [{"path": "a"}, {"fieldRef": {"fieldPath": "a"}, "resourceFieldRef": {"resource": "a"}}, {"path": "a", "fieldRef": {"fieldPath": "a"}}]}},
			{"name": "d", "serviceAccount": {}}, {"name": "e", "serviceAccount": {"serviceAccountName": "a"}},
			{"name": "f", "sysprep": {}}, {"name": "g", "sysprep": {"secret": {"name": ""}, "configMap": {"name": "a"}}}, {"name": "h", "downwardAPI": {}}]}`),
			`nodevirt.io/vmi: spec.volumes[0].configMap.name: Required value
nodevirt.io/vmi: spec.volumes[1].secret.secretName: Required value
nodevirt.io/vmi: spec.volumes[2].downwardAPI.fields[0]: Required value: fieldRef or resourceFieldRef
nodevirt.io/vmi: spec.volumes[2].downwardAPI.fields[1].path: Required value
nodevirt.io/vmi: spec.volumes[2].downwardAPI.fields[1]: fieldRef and resourceFieldRef: use one of them
nodevirt.io/vmi: spec.volumes[2].downwardAPI.fields[2].path: Duplicate value: "a"
nodevirt.io/vmi: spec.volumes[3].serviceAccount.serviceAccountName: Required value
nodevirt.io/vmi: spec.volumes[4].serviceAccount: a pod has one service account; use one such volume
nodevirt.io/vmi: spec.volumes[5].sysprep: Required value: configMap or secret
nodevirt.io/vmi: spec.volumes[6].sysprep: configMap and secret: use one of them
nodevirt.io/vmi: spec.volumes[6].sysprep.secret.name: Required value
nodevirt.io/vmi: spec.volumes[7].downwardAPI.fields: Required value`},
		{"name of the seed", with(vmi(`{"domain": {"devices": {"disks": [{"name": "cloudinit"}]}}, "volumes": [
			{"name": "cloudinit", "containerDisk": {"image": "a"}}]}`), vmspec.AnnotationUserData, "b"), `nodevirt.io/vmi: the disk name "cloudinit" is taken by the seed of the cloud-init annotations; rename the disk, or add a cloudInitNoCloud volume`},
		{"several", map[string]string{vmspec.AnnotationSSHKeys: "", vmspec.AnnotationMetaData: "[]", vmspec.AnnotationVMI: `{"domain": {"devices": {"disks": [{"name": "x"}]}}}`}, `nodevirt.io/cloud-init-meta-data: not a YAML or JSON mapping: yaml: unmarshal errors:   line 1: cannot unmarshal !!seq into map[string]interface {}
nodevirt.io/ssh-authorized-keys: holds no key; remove it or add one
nodevirt.io/vmi: spec.domain.devices.disks[0].name: Invalid value: "x": no volume has this name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkError(t, vmspec.ValidateSandbox(pod(tt.annotations)), tt.want)
		})
	}
}

func TestValidateSandbox(t *testing.T) {
	p := pod(map[string]string{"nodevirt.io/x": ""})
	p.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	checkError(t, vmspec.ValidateSandbox(p), `a VM needs a separate pod network; remove hostNetwork or runtimeClassName vm
annotation nodevirt.io/x: unknown; known are nodevirt.io/cloud-init-meta-data, nodevirt.io/cloud-init-network-config, nodevirt.io/cloud-init-user-data, nodevirt.io/blank-disks, nodevirt.io/copied-volumes, nodevirt.io/disk-mode, nodevirt.io/disk-origin, nodevirt.io/downward-metrics, nodevirt.io/imported-disks, nodevirt.io/migration, nodevirt.io/network-bindings, nodevirt.io/network-disks, nodevirt.io/preallocated-volumes, nodevirt.io/ssh-authorized-keys, nodevirt.io/vm-container, nodevirt.io/vmi`)
	// One that says nothing of machines may hold ordinary containers alone.
	p.Annotations = nil
	if err := vmspec.ValidateSandbox(p); err != nil {
		t.Error(err)
	}
	_, err := vmspec.FromCRI(p, container(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}))
	checkError(t, err, `a VM needs a separate pod network; remove hostNetwork or runtimeClassName vm`)
	p.Linux.SecurityContext = nil
	if err := vmspec.ValidateSandbox(p); err != nil {
		t.Error(err)
	}
}

// TestContradictions has VMIs that are fine but for the container's limits.
func TestContradictions(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		resources   *runtimeapi.LinuxContainerResources
		want        string
	}{
		{"no memory", nil, &runtimeapi.LinuxContainerResources{}, `container vm: a VM needs resources.limits.memory`},
		{"no memory in a VMI", vmi(least(``, ``)), &runtimeapi.LinuxContainerResources{}, `container vm: a VM needs resources.limits.memory`},
		{"little memory", nil, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1e6 - 1}, `container vm: resources.limits.memory: 999999 bytes are too little for a VM: must be greater than or equal to 1M`},
		{"too much", nil, &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 1<<63 - 1, CpuQuota: 1<<63 - 1, CpuPeriod: 1}, `container vm: resources.limits.cpu makes 9223372036854775807 vCPUs; a VM has at most 240
container vm: resources.limits.memory: 9223372036854775807 bytes are too much for a guest; give it at most 16384 GiB`},
		{"guest above the limit", vmi(least(`"memory": {"guest": "2Gi"}`, ``)),
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}, `nodevirt.io/vmi: spec.domain.memory.guest: Invalid value: "2Gi": larger than resources.limits.memory of container vm, which is 1Gi`},
		{"limits differ", vmi(least(`"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}`, ``)),
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 2 << 30, CpuQuota: 150_000, CpuPeriod: 100_000}, `nodevirt.io/vmi: spec.domain.resources.limits.cpu: Invalid value: "2": contradicts resources.limits.cpu of container vm, which is 1500m
nodevirt.io/vmi: spec.domain.resources.limits.memory: Invalid value: "1Gi": contradicts resources.limits.memory of container vm, which is 2Gi`},
		{"CPU limit too large for a VMI", vmi(least(``, ``)),
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30, CpuQuota: 241_000, CpuPeriod: 1000}, `nodevirt.io/vmi: spec.domain.cpu: not given, and container vm: resources.limits.cpu makes 241 vCPUs; a VM has at most 240`},
		{"another kernel image", vmi(least(
			`"firmware": {"kernelBoot": {"container": {"image": "evil", "kernelPath": "/k"}}}`, ``)),
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}, `nodevirt.io/vmi: spec.domain.firmware.kernelBoot.container.image: Invalid value: "evil": must be the container's own image, example.com/guest:1, or be mounted at /var/run/nodevirt-kernel as an image volume`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod(tt.annotations)
			if err := vmspec.ValidateSandbox(p); err != nil {
				t.Errorf("ValidateSandbox: %v", err)
			}
			_, err := vmspec.FromCRI(p, container(tt.resources))
			checkError(t, err, tt.want)
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %s", want)
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// networks is a VMI with such interfaces and networks.
func networks(interfaces, networks string) string {
	return `{"domain": {"devices": {"disks": [{"name": "root"}], "interfaces": [` + interfaces + `]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/guest:1"}}], "networks": [` + networks + `]}`
}
