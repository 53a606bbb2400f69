package backup

import (
	"context"

	api "kubevirt.io/api/backup/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/mount"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// Kind describes VirtualMachineBackups.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Object:  func() client.Object { return new(vmBackup) },
		List:    func() client.ObjectList { return new(vmBackupList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmbackup", "vmbackups"},
			Columns: []kind.Column{
				{Name: "SourceKind", Type: "string", JSONPath: ".spec.source.kind"},
				{Name: "SourceName", Type: "string", JSONPath: ".spec.source.name"},
				{Name: "Type", Type: "string", JSONPath: ".status.type"},
				kind.Condition("Complete", string(api.ConditionComplete), 0),
				kind.Condition("Failed", string(api.ConditionFailed), 0),
				kind.Age(),
			},
			Status: true,
		},
		Access: kind.Access{
			Object: []string{"get", "list", "watch", "patch"},
			Status: []string{"patch"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "backups", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

// TrackerKind describes VirtualMachineBackupTrackers.
func TrackerKind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Object:  func() client.Object { return new(tracker) },
		List:    func() client.ObjectList { return new(trackerList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmbackuptracker", "vmbackuptrackers"},
			Columns: []kind.Column{
				{Name: "Source", Type: "string", JSONPath: ".spec.source.name"},
				{Name: "LatestCheckpoint", Type: "string", JSONPath: ".status.latestCheckpoint.name"},
				kind.Age(),
			},
			Status: true,
		},
		Access:    kind.Access{Object: []string{"get", "list", "watch"}, Status: []string{"patch"}},
		Admission: trackerRules(),
		Fields:    []kind.FieldList{{Name: "backuptrackers", Fields: SupportedTracker(), Check: kind.Checked(CheckTracker)}},
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	nodes, err := control.ForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	vmis, err := instances.New(in)
	if err != nil {
		return err
	}
	mounts := mount.Mounts{Live: m.GetAPIReader(), Uncached: in.Uncached, Pods: vmis.Pods, Holder: in.Holder}
	r := &Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Mounts: mounts, Nodes: nodes, Now: in.Now, Events: in.Events("vmbackup-controller"),
	}
	if err := r.SetUp(ctx, m); err != nil {
		return err
	}
	t := &Tracking{Client: m.GetClient(), Live: m.GetAPIReader(), Config: in.Config}
	return t.SetUp(m)
}
