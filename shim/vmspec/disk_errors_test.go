package vmspec_test

// badDisks are further VMIs that are refused, for their disks and volumes, see badVMIs.
var badDisks = []struct{ name, vmi, want string }{
	{"block sizes", `{"domain": {"devices": {"disks": [{"name": "a", "blockSize": {"custom": {"logical": 1000, "physical": 4194304}}}]}},
		"volumes": [{"name": "a", "emptyDisk": {"capacity": 1}}]}`, `spec.domain.devices.disks[0].blockSize.custom.logical: Invalid value: 1000: must be a power of 2 from 512 to 2097152
spec.domain.devices.disks[0].blockSize.custom.physical: Invalid value: 4194304: must be a power of 2 from 512 to 2097152`},
	{"block sizes that contradict", `{"domain": {"devices": {"disks": [{"name": "a", "blockSize": {"custom": {"logical": 4096, "physical": 4096}}},
			{"name": "b", "disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 4096, "physical": 512}}},
			{"name": "c", "disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 512, "physical": 512}, "matchVolume": {}}},
			{"name": "d", "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}}, {"name": "e", "cdrom": {}, "blockSize": {"matchVolume": {}}},
			{"name": "f", "blockSize": {"matchVolume": {}}}, {"name": "g", "blockSize": {"custom": {"logical": 512}, "matchVolume": {"enabled": false}}}]}},
		"volumes": [{"name": "a", "emptyDisk": {"capacity": 1}}, {"name": "b", "emptyDisk": {"capacity": 1}}, {"name": "c", "emptyDisk": {"capacity": 1}},
			{"name": "d", "emptyDisk": {"capacity": 1}}, {"name": "e", "emptyDisk": {"capacity": 1}},
			{"name": "f", "persistentVolumeClaim": {"claimName": "f"}}, {"name": "g", "emptyDisk": {"capacity": 1}}]}`,
		`spec.domain.devices.disks[0].blockSize.custom.logical: Invalid value: 4096: a disk on bus sata has blocks of 512 bytes
spec.domain.devices.disks[1].blockSize.custom.logical: Invalid value: 4096: larger than physical, 512
spec.domain.devices.disks[2].blockSize: custom and matchVolume: use one of them
spec.domain.devices.disks[3].blockSize.matchVolume: needs a PVC or a hostDisk; use custom
spec.domain.devices.disks[4].blockSize: goes with disk; a cdrom and a lun have their own
spec.domain.devices.disks[5].blockSize.matchVolume: goes with bus virtio or scsi
spec.domain.devices.disks[6].blockSize.custom.physical: Required value: a size in bytes, such as 4096`},
	{"I/O threads", `{"domain": {"ioThreadsPolicy": "supplementalPool", "devices": {}}}`, `spec.domain.ioThreads.supplementalPoolThreadCount: Required value: the number of threads`},
	{"I/O threads without a pool", `{"domain": {"ioThreads": {"supplementalPoolThreadCount": 2}, "devices": {}}}`,
		`spec.domain.ioThreads.supplementalPoolThreadCount: goes with ioThreadsPolicy supplementalPool`},
	{"dedicated I/O threads", `{"domain": {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2}, "devices": {"disks": [
			{"name": "a", "dedicatedIOThread": true}, {"name": "b", "disk": {"bus": "virtio"}, "dedicatedIOThread": true}]}},
		"volumes": [{"name": "a", "emptyDisk": {"capacity": 1}}, {"name": "b", "emptyDisk": {"capacity": 1}}]}`, `spec.domain.devices.disks[0].dedicatedIOThread: goes with bus virtio
spec.domain.devices.disks[1].dedicatedIOThread: goes with ioThreadsPolicy shared or auto`},
	{"metrics", `{"domain": {"devices": {"disks": [{"name": "a", "disk": {"bus": "sata"}}, {"name": "b", "cdrom": {}}, {"name": "c", "disk": {}, "bootOrder": 1}]}},
		"volumes": [{"name": "a", "downwardMetrics": {}}, {"name": "b", "downwardMetrics": {}}, {"name": "c", "downwardMetrics": {}}]}`,
		`spec.domain.devices.disks[0]: downwardMetrics needs a disk on bus virtio
spec.domain.devices.disks[1]: downwardMetrics needs a disk on bus virtio`},
	{"file systems", `{"domain": {"devices": {"disks": [{"name": "b"}], "filesystems": [{"name": "a"}, {"virtiofs": {}}, {"name": "b", "virtiofs": {}}, {"name": "b", "virtiofs": {}},
			{"name": "none", "virtiofs": {}}, {"name": "empty", "virtiofs": {}}, {"name": "a-name-that-is-longer-than-virtio-fs-takes", "virtiofs": {}}]}},
		"volumes": [{"name": "a", "configMap": {"name": "a"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "b"}}, {"name": "empty", "emptyDisk": {"capacity": 1}}]}`,
		`spec.domain.devices.filesystems[0].virtiofs: Required value: the only type
spec.domain.devices.filesystems[1].name: Required value
spec.domain.devices.filesystems[3].name: Duplicate value: "b"
spec.domain.devices.filesystems[4].name: Invalid value: "none": no volume has this name
spec.domain.devices.filesystems[5].name: Invalid value: "empty": its volume holds no files for the guest; use configMap, containerPath, dataVolume, downwardAPI, persistentVolumeClaim, secret, serviceAccount
spec.domain.devices.filesystems[6].name: Invalid value: "a-name-that-is-longer-than-virtio-fs-takes": a guest mounts it by its name, which has at most 36 characters
spec.domain.devices.disks[0].name: Invalid value: "b": its volume is in filesystems, too; remove one of them`},
	{"shareable and cached", `{"domain": {"devices": {"disks": [{"name": "a", "shareable": true, "cache": "writeback"}]}},
		"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]}`,
		`spec.domain.devices.disks[0].cache: Invalid value: "writeback": a shareable disk needs none, the default, or writethrough`},
	{"host disks", `{"domain": {"devices": {}}, "volumes": [{"name": "a", "hostDisk": {"path": "/", "type": "Folder"}},
		{"name": "b", "hostDisk": {"path": "../a", "type": "Disk", "capacity": "-1"}}]}`, `spec.volumes[0].hostDisk.path: Invalid value: "/": must be the path of a file
spec.volumes[0].hostDisk.type: Unsupported value: "Folder": supported values: "Disk", "DiskOrCreate"
spec.volumes[1].hostDisk.capacity: Invalid value: "-1": must be a quantity such as 500m, 2, 512Mi or 1.5Gi
spec.volumes[1].hostDisk.path: Invalid value: "../a": must be an absolute path to a file without relative components`},
	{"host disks that contradict themselves", `{"domain": {"devices": {}}, "volumes": [{"name": "a", "hostDisk": {}},
		{"name": "b", "hostDisk": {"path": "/a", "type": "Disk", "capacity": "1Gi"}}, {"name": "c", "hostDisk": {"path": "/a", "type": "DiskOrCreate"}}]}`, `spec.volumes[0].hostDisk.path: Required value
spec.volumes[0].hostDisk.type: Required value: Disk or DiskOrCreate
spec.volumes[1].hostDisk.capacity: goes with type DiskOrCreate
spec.volumes[2].hostDisk.capacity: Required value: the size of the file to create`},
}
