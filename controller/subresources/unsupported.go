package subresources

// unsupported returns KubeVirt's other subresources, with the answer to their callers.
func unsupported() map[string]string {
	return map[string]string{ //nolint:gosec // names of subresources, and no credentials
		"addvolume":                  "nodevirt can't add a volume to a VM that runs: add it to the VM's template, and restart the VM",
		"removevolume":               "nodevirt can't remove a volume from a VM that runs: take it out of the VM's template, and restart the VM",
		"memorydump":                 "nodevirt makes no memory dumps",
		"removememorydump":           "nodevirt makes no memory dumps",
		"backup":                     "nodevirt makes no backups",
		"usbredir":                   "nodevirt's VMs have no USB to redirect devices to",
		"vsock":                      "nodevirt's VMs have no VSOCK device",
		"objectgraph":                "nodevirt keeps no graph of a VM's objects: kubectl tree, or the owner references, show it",
		"sev/fetchcertchain":         "nodevirt's VMs have no SEV",
		"sev/querylaunchmeasurement": "nodevirt's VMs have no SEV",
		"sev/setupsession":           "nodevirt's VMs have no SEV",
		"sev/injectlaunchsecret":     "nodevirt's VMs have no SEV",
	}
}
