package agent

// The labels of nodes. Administrators write the first, this program the second.
const (
	// InstallLabel says what should be on the node: installWanted, removalForced, or nothing.
	InstallLabel = "nodevirt.io/install"
	// OwnerLabel marks a node that this program has changed, and keeps its pod there until it has
	// restored the node. It is set before the first change, and removed after the last one.
	OwnerLabel = "nodevirt.io/installed-by"
	// Owner is the value of OwnerLabel.
	Owner = "nodevirt-installer"

	installWanted = "true"
	removalForced = "force-uninstall"
)

// wish is what the labels of a node ask for.
type wish string

const (
	// install: the node should run VMs.
	install wish = "install"
	// restore: the node should be as before, as soon as no VM runs.
	restore wish = "restore"
	// force: the node should be as before, and its VMs end.
	force wish = "force"
	// nothing: the node is not this program's.
	nothing wish = "nothing"
)

// wishOf reads the labels of a node.
//
//	install=true             install
//	install=force-uninstall  force    if installed-by is ours
//	install is anything else restore  if installed-by is ours
//	otherwise                nothing
func wishOf(labels map[string]string) wish {
	value, owned := labels[InstallLabel], labels[OwnerLabel] == Owner
	switch {
	case value == installWanted:
		return install
	case !owned:
		return nothing
	case value == removalForced:
		return force
	}
	return restore
}
