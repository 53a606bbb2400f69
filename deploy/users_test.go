package deploy_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/controller/kinds"
)

// grants are the verbs of KubeVirt's roles on one resource; empty for none.
type grants struct{ admin, edit, view, migrate, everyone string }

const (
	read   = "get list watch"
	change = "create delete get list patch update watch"
	all    = "create delete deletecollection get list patch update watch"
)

// expected returns what KubeVirt's access tests check, by resource, for each kind and
// for the subresources of its API, served here or not.
func expected() map[string]grants {
	table := map[string]grants{
		"kubevirt.io kubevirts":                                {edit: "get list", view: "get list", everyone: "get list"},
		"kubevirt.io virtualmachineinstancemigrations":         {admin: read, edit: read, view: read, migrate: all},
		"kubevirt.io virtualmachineinstancereplicasets/scale":  {admin: "get patch update", edit: "get patch update", view: "get"},
		"snapshot.kubevirt.io virtualmachinesnapshots":         {admin: all, edit: change, view: read},
		"snapshot.kubevirt.io virtualmachinesnapshotcontents":  {admin: all, edit: change, view: read},
		"snapshot.kubevirt.io virtualmachinerestores":          {admin: all, edit: change, view: read},
		"export.kubevirt.io virtualmachineexports":             {admin: all, edit: change, view: read},
		"clone.kubevirt.io virtualmachineclones":               {admin: all, edit: change, view: read},
		"pool.kubevirt.io virtualmachinepools/scale":           {admin: "get patch update", edit: "get patch update", view: "get"},
		"migrations.kubevirt.io migrationpolicies":             {admin: read, edit: read, view: read},
		"subresources.kubevirt.io expand-vm-spec":              {admin: "update", edit: "update", view: "update"},
		"subresources.kubevirt.io virtualmachines/expand-spec": {admin: "get", edit: "get", view: "get"},
		"subresources.kubevirt.io virtualmachines/migrate":     {migrate: "update"},
		"subresources.kubevirt.io version":                     {everyone: "get list"},
		"subresources.kubevirt.io guestfs":                     {everyone: "get list"},
		"subresources.kubevirt.io healthz":                     {everyone: "get list"},
	}
	for _, k := range kinds.All() {
		of := grants{admin: all, edit: change, view: read}
		if k.CRD.ClusterScoped {
			of.everyone = read
		}
		if key := k.Version.Group + " " + k.Resource(); table[key] == (grants{}) { // else it has an exception
			table[key] = of
		}
	}
	for names, of := range map[string]grants{
		"guestosinfo filesystemlist userlist sev/fetchcertchain sev/querylaunchmeasurement objectgraph": {
			admin: "get", edit: "get", view: "get",
		},
		"console vnc portforward usbredir": {admin: "get", edit: "get"},
		"vnc/screenshot":                   {admin: "get"},
		"pause unpause addvolume removevolume freeze unfreeze softreboot reset evacuate evacuate/cancel sev/setupsession sev/injectlaunchsecret": {
			admin: "update", edit: "update",
		},
	} {
		for name := range strings.FieldsSeq(names) {
			table["subresources.kubevirt.io virtualmachineinstances/"+name] = of
		}
	}
	for name := range strings.FieldsSeq("start stop restart addvolume removevolume memorydump removememorydump evacuate evacuate/cancel") {
		table["subresources.kubevirt.io virtualmachines/"+name] = grants{admin: "update", edit: "update"}
	}
	table["subresources.kubevirt.io virtualmachines/portforward"] = grants{admin: "get", edit: "get"}
	table["subresources.kubevirt.io virtualmachines/objectgraph"] = grants{admin: "get", edit: "get", view: "get"}
	return table
}

// TestRolesOfUsers holds the roles of users against the table of kinds, and against
// what KubeVirt's own tests expect of roles with these names.
func TestRolesOfUsers(t *testing.T) {
	roles := objects(t, "kubernetes/users.yaml")
	have := map[string]grants{}
	grant := func(role string, to func(*grants) *string) {
		o, ok := roles["ClusterRole "+role]
		if !ok {
			t.Errorf("there is no ClusterRole %s", role)
		}
		for _, r := range o.Rules {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					of := have[group+" "+resource]
					*to(&of) = strings.Join(slices.Sorted(slices.Values(append(strings.Fields(*to(&of)), r.Verbs...))), " ")
					have[group+" "+resource] = of
				}
			}
		}
	}
	grant("kubevirt.io:admin", func(g *grants) *string { return &g.admin })
	grant("kubevirt.io:edit", func(g *grants) *string { return &g.edit })
	grant("kubevirt.io:view", func(g *grants) *string { return &g.view })
	grant("kubevirt.io:migrate", func(g *grants) *string { return &g.migrate })
	grant("kubevirt.io:default", func(g *grants) *string { return &g.everyone })
	grant("instancetype.kubevirt.io:view", func(g *grants) *string { return &g.everyone })
	if diff := gocmp.Diff(expected(), have, gocmp.AllowUnexported(grants{})); diff != "" {
		t.Errorf("users.yaml differs from KubeVirt's roles (-KubeVirt +file):\n%s", diff)
	}
}

// TestRolesAreAggregated: three roles extend those of Kubernetes of the same name, and
// two are bound to all users.
func TestRolesAreAggregated(t *testing.T) {
	var have []string
	for key, o := range objects(t, "kubernetes/users.yaml") {
		for label := range o.Metadata.Labels {
			if into, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok {
				have = append(have, o.Metadata.Name+" in "+into)
			}
		}
		if strings.HasPrefix(key, "ClusterRoleBinding ") {
			have = append(have, fmt.Sprintf("%s bound to %s", o.RoleRef.Name, cmp.Or(o.Subjects...).Name))
		}
	}
	slices.Sort(have)
	want := []string{
		"instancetype.kubevirt.io:view bound to system:authenticated",
		"kubevirt.io:admin in admin",
		"kubevirt.io:default bound to system:authenticated",
		"kubevirt.io:edit in edit",
		"kubevirt.io:view in view",
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("users.yaml (-want +have):\n%s", diff)
	}
}
