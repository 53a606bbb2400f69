package migrationpolicy

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	migrations "kubevirt.io/api/migrations/v1alpha1"

	"github.com/nodevirt/nodevirt/controller/config"
)

// TestMatch: the most detailed policy wins.
func TestMatch(t *testing.T) {
	type set = migrations.LabelSelector
	policy := func(name string, instance, namespace set) migrations.MigrationPolicy {
		return migrations.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: migrations.MigrationPolicySpec{
			Selectors: &migrations.Selectors{VirtualMachineInstanceSelector: instance, NamespaceSelector: namespace},
		}}
	}
	everything := policy("z-everything", nil, nil)
	for name, tt := range map[string]struct {
		all  []migrations.MigrationPolicy
		want string
	}{
		"none":          {},
		"no selectors":  {all: []migrations.MigrationPolicy{{}}},
		"everything":    {all: []migrations.MigrationPolicy{everything}, want: "z-everything"},
		"another value": {all: []migrations.MigrationPolicy{policy("a", set{"app": "db"}, nil)}},
		"half":          {all: []migrations.MigrationPolicy{policy("a", set{"app": "web"}, set{"env": "test"})}},
		"more labels": {
			all:  []migrations.MigrationPolicy{everything, policy("a", set{"app": "web"}, nil), policy("b", set{"app": "web"}, set{"env": "prod"})},
			want: "b",
		},
		"more labels of the instance": {
			all: []migrations.MigrationPolicy{
				policy("a", set{"app": "web"}, set{"env": "prod"}), policy("b", set{"app": "web", "tier": "1"}, nil),
			},
			want: "b",
		},
		"names": {
			all:  []migrations.MigrationPolicy{policy("c", set{"app": "web"}, nil), policy("b", set{"tier": "1"}, nil)},
			want: "b",
		},
	} {
		got := ""
		if p := Match(tt.all, labels.Set{"app": "web", "tier": "1"}, labels.Set{"env": "prod"}); p != nil {
			got = p.Name
		}
		if got != tt.want {
			t.Errorf("%s: policy %q, want %q", name, got, tt.want)
		}
	}
}

func TestConfigure(t *testing.T) {
	c := Configure(nil, config.Config{}.Migrations())
	if *c.AllowAutoConverge || *c.AllowWorkloadDisruption || !c.BandwidthPerMigration.IsZero() || *c.CompletionTimeoutPerGiB != 150 {
		t.Errorf("defaults: %+v", c)
	}
	p := new(migrations.MigrationPolicy)
	p.Spec.AllowWorkloadDisruption = new(true)
	p.Spec.AllowAutoConverge, p.Spec.CompletionTimeoutPerGiB = new(true), new(int64(7))
	p.Spec.BandwidthPerMigration = new(resource.MustParse("64Mi"))
	c = Configure(p, config.Config{}.Migrations())
	if !*c.AllowAutoConverge || !*c.AllowWorkloadDisruption || c.BandwidthPerMigration.Value() != 64<<20 || *c.CompletionTimeoutPerGiB != 7 || *c.ProgressTimeout != 150 {
		t.Errorf("a policy's: %+v", c)
	}
}
