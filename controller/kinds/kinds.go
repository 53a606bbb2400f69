// Package kinds has the table of the API kinds that the controller owns. The
// scheme, the caches, admission, the CRDs, the roles in deploy/ and the docs' lists
// of fields read it. It leaves each kind to the kind's package: a new kind is a new
// package and a row here.
package kinds

import (
	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/backup"
	"github.com/nodevirt/nodevirt/controller/clone"
	"github.com/nodevirt/nodevirt/controller/export"
	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/migration"
	"github.com/nodevirt/nodevirt/controller/migrationpolicy"
	"github.com/nodevirt/nodevirt/controller/pool"
	"github.com/nodevirt/nodevirt/controller/preset"
	"github.com/nodevirt/nodevirt/controller/replicaset"
	"github.com/nodevirt/nodevirt/controller/restore"
	"github.com/nodevirt/nodevirt/controller/snapshot"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/controller/vmi"
)

// All returns every kind, in the order in which their reconcilers are set up.
func All() []kind.Kind {
	return []kind.Kind{
		vmi.Kind(),
		migration.Kind(),
		vm.Kind(),
		replicaset.Kind(),
		pool.Kind(),
		snapshot.Kind(),
		snapshot.ContentKind(),
		restore.Kind(),
		clone.Kind(),
		backup.Kind(),
		backup.TrackerKind(),
		export.Kind(),
		instancetype.TypeKind(),
		instancetype.ClusterTypeKind(),
		instancetype.PreferenceKind(),
		instancetype.ClusterPreferenceKind(),
		preset.Kind(),
		migrationpolicy.Kind(),
		installation.Kind(),
	}
}

// Rules returns the rules of admission by the kinds' names.
func Rules() map[string]admission.Rules {
	rules := map[string]admission.Rules{}
	for _, k := range All() {
		of := k.Admission
		if k.Cached {
			of.Cached = k.Version
		}
		rules[k.Name()] = of
	}
	return rules
}

// Definitions returns what the generator of the CRDs reads.
func Definitions() []kind.Definition {
	var all []kind.Definition
	for _, k := range All() {
		all = append(all, k.Definition())
	}
	return all
}
