package installation

import "strings"

// hints name the reasons for which fields are refused, and what to use instead, by the fields' paths.
func hints() map[string]string {
	all := map[string]string{}
	for why, paths := range map[string]string{
		"the Deployment of nodevirt-controller says it":          "imageTag imageRegistry imagePullSecrets infra customizeComponents.patches customizeComponents.flags",
		"apply deploy/monitoring instead":                        "monitorNamespace serviceMonitorNamespace monitorAccount",
		"the objects of nodevirt have its own labels":            "productVersion productName productComponent",
		"guests migrate within the cluster":                      "synchronizationPort",
		"the certificates of nodevirt are renewed by themselves": "certificateRotateStrategy.selfSigned",
		"use scheduling of the RuntimeClass":                     "workloads",

		"set imagePullPolicy of each containerDisk":                 "configuration.imagePullPolicy",
		"use -runtime-class of nodevirt-controller":                 "configuration.defaultRuntimeClass",
		"set architecture of each VM":                               "configuration.architectureConfiguration.defaultArchitecture",
		"there is no pod of KubeVirt's launcher":                    "configuration.selinuxLauncherType configuration.seccompConfiguration",
		"memory that a guest frees is reported unless it is locked": "configuration.virtualMachineOptions.disableFreePageReporting",
		"set chassis of each VM":                                    "configuration.smbios",
		"use the kubelet's maxPods":                                 "configuration.virtualMachineInstancesPerNode",
		"nodevirt has no device plugin":                             "configuration.permittedHostDevices.usb",
		"a node's administrator makes mediated devices":             "configuration.mediatedDevicesConfiguration.mediatedDeviceTypes configuration.mediatedDevicesConfiguration.mediatedDevicesTypes configuration.mediatedDevicesConfiguration.nodeMediatedDeviceTypes",
		"a node's administrator decides, in the shim's config":      "configuration.ovmfPath configuration.architectureConfiguration.amd64.ovmfPath configuration.architectureConfiguration.arm64.ovmfPath configuration.ksmConfiguration configuration.memBalloonStatsPeriod configuration.developerConfiguration.diskVerification configuration.developerConfiguration.minimumClusterTSCFrequency configuration.developerConfiguration.logVerbosity.nodeVerbosity",
		"disk.img is as large as its file system allows":            "configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent configuration.developerConfiguration.minimumReservePVCBytes",
		"nothing attests guests":                                    "configuration.confidentialCompute",
		"use a NetworkPolicy and the nodes' network":                "configuration.migrations.network",
		"nodevirt chooses it":                                       "configuration.migrations.maxDowntimeMs configuration.tlsConfiguration.ciphers",
		"there are no utility volumes":                              "configuration.migrations.utilityVolumesTimeout",
		"nodevirt sets no SELinux level":                            "configuration.migrations.matchSELinuxLevelOnMigration",
	} {
		for path := range strings.FieldsSeq(paths) {
			all[path] = why
		}
	}
	return all
}
