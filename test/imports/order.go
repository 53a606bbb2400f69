// Package imports has the order in which the project's packages may import each
// other, and checks it: see docs/architecture.md.
package imports

// layers returns the packages from the top to the bottom. A package may import
// packages of lower layers and packages of the same entry. An entry that ends in
// "/..." covers the packages below it that have no entry. The packages of the last
// layer are leaves: they import nothing of ours.
func layers() [][]string {
	return [][]string{
		{"cmd/...", "deploy/cmd/..."},
		{"deploy/bundle"},

		// The cluster's half.
		{"controller"},
		{"controller/subresources"},
		{"controller/api"},
		{"controller/kinds"},
		{"controller/clone"},
		{"controller/backup"},
		{"controller/export", "controller/pool", "controller/restore"},
		{"controller/migration", "controller/preset", "controller/replicaset", "controller/snapshot", "controller/vm"},
		{"controller/backoff", "controller/installation", "controller/instancetype", "controller/measures", "controller/memory", "controller/migrationpolicy"},
		{"controller/vmi"},
		{"controller/hotplug"},
		{"controller/kind"},
		{"controller/admission"},
		{"controller/control", "controller/diskguard", "controller/mount", "controller/state"},
		{"controller/pod"},
		{"controller/config"},
		{"controller/foreign", "controller/manifest"},

		// The node's half.
		{"shim"},
		{"shim/cri/..."},
		{"shim/vm"},
		{"shim/vm/vmtest"},
		{"shim/vm/guest", "shim/vm/lifecycle", "shim/vm/sandbox"},
		{"shim/vm/save"},
		{"shim/vm/backup", "shim/vm/disowned", "shim/vm/hotplug", "shim/vm/memorydump", "shim/vm/move"},
		{"shim/vm/attachment", "shim/vm/control"},
		{"shim/vm/report"},
		{"shim/vm/resources", "shim/vm/table"},
		{"shim/metrics", "shim/share", "shim/vminfo"},
		{"shim/migrate"},
		{"shim/disk/...", "shim/nodelabels", "shim/vm/event", "shim/vmfile"},
		{"shim/hooks"},
		{"shim/config", "shim/domain", "shim/record", "shim/seed"},
		{"shim/credential", "shim/hostdevice"},

		// What both halves read, and what knows neither.
		{"shim/vmspec"},
		{
			"imageunpack/iscsi", "imageunpack/persist", "imageunpack/rawview", "imageunpack/registrydisk", "netsetup", "shim/podstatus",
			"shim/stream/client", "shim/tpm", "shim/virtiofs", "shim/vm/layout",
		},
		{"controller/export/proxy", "controller/export/push", "imageunpack/confine/confinetest", "imageunpack/expand", "shim/checkpoint/unpack", "shim/forks", "shim/migrate/compat"},
		{"controller/events", "controller/export/server", "controller/share", "imageunpack", "shim/domain/fdpass/server", "shim/domain/ramfd", "shim/domain/tapfd", "shim/witness"},
		{
			"controller/aggregated", "controller/certs", "controller/datavolume", "controller/decode", "controller/index", "controller/pages", "controller/recent", "controller/replicas", "controller/setup", "controller/volumesnapshot", "deploy", "deploy/image", "deploy/release", "imageunpack/confine", "imageunpack/nbd", "imageunpack/qcow2", "imageunpack/registrydisk/layout",
			"imageunpack/iscsi/outage", "netsetup/reach", "shim/agent", "shim/cgroup", "shim/checkpoint", "shim/console/...", "shim/domain/accel",
			"shim/domain/fdpass", "shim/domain/landlock",
			"shim/fields/...", "shim/hooks/domainxml", "shim/hooks/wire", "shim/hostcpu", "shim/iso", "shim/kubelet", "shim/migrate/handover", "shim/migrate/link", "shim/migrate/order", "shim/migrate/rpc",
			"shim/podstatus/condition", "shim/ramstream", "shim/stream", "shim/vm/background", "shim/vm/hotplug/order", "shim/vm/vmerrors",
			"shim/nodeproblems", "shim/shutdown", "shim/supervise", "shim/uefi", "shim/vhostmd", "shim/vmstate", "tracing",
		},
		// What all may use.
		{"internal/bounds", "internal/budget", "internal/callers", "internal/turns"},
	}
}

// ban forbids imports that the layers alone would allow.
type ban struct {
	from, to string
	// except are packages that may be imported all the same.
	except []string
	why    string
}

func bans() []ban {
	return []ban{
		{
			from: "controller/...", to: "shim/...",
			except: []string{"shim/fields", "shim/migrate/order", "shim/podstatus/condition", "shim/vm/hotplug/order", "shim/vmspec"},
			why:    "the cluster's half knows of nodes only what a pod and its conditions carry",
		},
		{
			from: "imageunpack/...", to: "shim/...", except: []string{"shim/supervise"},
			why: "imageunpack is a library that other programs can use",
		},
		{
			from: "netsetup/...", to: "shim/...", except: []string{"shim/supervise"},
			why: "netsetup is a library that other programs can use",
		},
		{from: "...", to: "test/...", why: "packages below test/ are for tests and the development node"},
	}
}
