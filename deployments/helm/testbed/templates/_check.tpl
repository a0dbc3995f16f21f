{{/* What the schema cannot say: values that do not fit together. The same rules as a cluster file's. */}}
{{- define "testbed.check" -}}
{{- $machine := .Values.machine -}}
{{- $profile := include "testbed.machine" . | fromYaml -}}
{{- $has := int $profile.gpus -}}
{{- $gpus := int .Values.workload.gpus -}}
{{- $nodes := int .Values.workload.nodes -}}
{{- if not (and (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" .Release.Name) (le (len .Release.Name) 45)) -}}
{{- fail (printf "release name %q: 1 to 45 of a-z, 0-9 and '-' are legal, a letter first, no '-' at the end; pods and Service are called by it" .Release.Name) -}}
{{- end -}}
{{- if and (not $has) (not $nodes) -}}
{{- fail (printf "workload.nodes: is required with machine %s" $machine) -}}
{{- end -}}
{{- if and (not $has) (mod $gpus $nodes) -}}
{{- fail (printf "workload.gpus: %d nodes cannot have the same number each, is %d; a multiple of %d is legal" $nodes $gpus $nodes) -}}
{{- end -}}
{{- if and $has $nodes -}}
{{- fail (printf "workload.nodes: follows from workload.gpus on machine %s, leave it out" $machine) -}}
{{- end -}}
{{- if and $has (or (lt $gpus 1) (and (gt $gpus $has) (mod $gpus $has))) -}}
{{- fail (printf "workload.gpus: machine %s has %d per node, so 1 to %d or a multiple of %d is legal, is %d" $machine $has $has $has $gpus) -}}
{{- end -}}
{{- if and .Values.network.hostNetwork $profile.network_annotations (not .Values.network.privileged) -}}
{{- fail (printf "network.hostNetwork: needs network.privileged on machine %s, whose RDMA devices come by networks of the pod's own otherwise" $machine) -}}
{{- end -}}
{{- if and .Values.network.privileged (not .Values.network.hostNetwork) -}}
{{- fail "network.privileged: is for network.hostNetwork alone; leave it out" -}}
{{- end -}}
{{- if and .Values.network.hostNetwork (eq (int .Values.network.sshPort) 22) -}}
{{- fail "network.sshPort: is taken by the host's own sshd with network.hostNetwork; choose another" -}}
{{- end -}}
{{- if and .Values.tasSettings.topologyRequest (not .Values.queue) -}}
{{- fail "tasSettings.topologyRequest: is Kueue's, so it needs queue" -}}
{{- end -}}
{{- if and .Values.queuePriority (not .Values.queue) -}}
{{- fail "queuePriority: is Kueue's, so it needs queue" -}}
{{- end -}}
{{- range .Values.avoidNodes -}}
{{- if has . $.Values.targetNodes -}}
{{- fail (printf "avoidNodes: %s is among targetNodes too" .) -}}
{{- end -}}
{{- end -}}
{{- include "testbed.checkEnv" . -}}
{{- include "testbed.checkVolumes" . -}}
{{- include "testbed.checkKeys" . -}}
{{- end -}}

{{- define "testbed.checkEnv" -}}
{{- $facts := .Files.Get "facts.yaml" | fromYaml -}}
{{- $seen := dict -}}
{{- range concat .Values.network.ncclSettings .Values.workload.envs -}}
{{- $name := .name -}}
{{- if and (hasKey . "value") (regexMatch $facts.secret_names $name) -}}
{{- fail (printf "workload.envs: %s looks like a secret and would stand in the manifest; use valueFrom.secretKeyRef" $name) -}}
{{- end -}}
{{- range $facts.own_names -}}
{{- if hasPrefix . $name -}}
{{- fail (printf "workload.envs: %s is set by the chart or by the launcher; leave it out" $name) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "workload.envs: %s is given twice, counting network.ncclSettings" $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- end -}}
{{- end -}}

{{- define "testbed.checkVolumes" -}}
{{- $taken := (.Files.Get "facts.yaml" | fromYaml).taken_paths -}}
{{- $seen := dict -}}
{{- range include "testbed.volumes" . | fromYamlArray -}}
{{- $path := .mountPath -}}
{{- if or (not (isAbs $path)) (ne (clean $path) $path) (contains ":" $path) -}}
{{- fail (printf "volumes: %q is no absolute path, such as /data (no '..', no ':', no '/' at the end)" $path) -}}
{{- end -}}
{{- range $taken -}}
{{- if or (hasPrefix (printf "%s/" .) (printf "%s/" $path)) (hasPrefix (printf "%s/" (trimSuffix "/" $path)) .) -}}
{{- fail (printf "volumes: %q is over or in %s, which the node needs; choose another, such as /data" $path .) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $seen $path -}}
{{- fail (printf "volumes: mount %s appears twice; each volume needs its own" $path) -}}
{{- end -}}
{{- $_ := set $seen $path true -}}
{{- end -}}
{{- end -}}

{{- define "testbed.checkKeys" -}}
{{- $files := omit .Values.keys "existingSecret" -}}
{{- range $name, $text := $files -}}
{{- if and $.Values.keys.existingSecret $text -}}
{{- fail (printf "keys.%s: keys.existingSecret is given too; leave one of them out" $name) -}}
{{- end -}}
{{- if not (or $.Values.keys.existingSecret $text) -}}
{{- fail (printf "keys.%s: is missing; every testbed has keys of its own: --values <(deployments/helm/testbed/new-keys), or keys.existingSecret" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
