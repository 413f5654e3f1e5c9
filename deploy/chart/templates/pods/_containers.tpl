{{/* The collector. Takes a dict: root, scratch, mounts (of data). */}}
{{- define "isrwatch.collect" -}}
{{- $own := .root.Values.collect -}}
name: collector
image: {{ include "isrwatch.image" (list .root "") }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
workingDir: /data
args:
  - collect
  - --config=/etc/isrwatch/isrwatch.toml
  {{- with $own.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: ISRWATCH_COLLECT__LISTEN, value: "$(POD_IP):9310"}
  # The name of the pod stays, so the collector continues its own logs of the bus.
  - {name: ISRWATCH_COLLECT__COLLECTOR, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: ISRWATCH_BUS__DIRECTORY, value: /data/bus}
  {{- include "isrwatch.extra-env" (dict "root" .root "own" $own) | indent 2 }}
{{- include "isrwatch.env-from" .root }}
ports:
  - {name: collector, containerPort: 9310}
{{- include "isrwatch.probes" (dict "port" "collector" "hangs" "/-/alive" "own" $own) }}
{{ include "isrwatch.container-end" (dict "root" .root "own" $own) }}
volumeMounts:
  {{- include "isrwatch.mounts" (list .root .scratch) | nindent 2 }}
  - {name: data, mountPath: /data}
{{- end -}}

{{/* The exporter. Takes a dict: root, scratch, data (true where the tables lie in a volume). */}}
{{- define "isrwatch.export" -}}
{{- $own := .root.Values.export -}}
name: exporter
image: {{ include "isrwatch.image" (list .root "") }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- if .data }}
workingDir: /data
{{- end }}
args:
  - export
  - --config.file=/etc/isrwatch/isrwatch.toml
  {{- with $own.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: ISRWATCH_EXPORT__LISTEN, value: "$(POD_IP):9308"}
  {{- include "isrwatch.extra-env" (dict "root" .root "own" $own) | indent 2 }}
{{- include "isrwatch.env-from" .root }}
ports:
  - {name: exporter, containerPort: 9308}
{{- include "isrwatch.probes" (dict "port" "exporter" "hangs" "/-/healthy" "own" $own) }}
{{ include "isrwatch.container-end" (dict "root" .root "own" $own) }}
volumeMounts:
  {{- include "isrwatch.mounts" (list .root .scratch) | nindent 2 }}
  {{- if .data }}
  - {name: data, mountPath: /data, readOnly: true}
  {{- end }}
{{- end -}}

{{/* What the kubelet asks a container. Takes a dict: port (a name), hangs (a path), own (the values of the program). */}}
{{- define "isrwatch.probes" }}
# Start: the program answers at all. Java, imports and tables are read before or behind it; until then nothing else is asked.
startupProbe:
  httpGet: {{ include "isrwatch.request" (list . .hangs) }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (add (int .own.startSeconds) 4) 5 }}
# Liveness: 503 only while it hangs, that is, nothing has moved for a minute. Kafka, a store or executors that are away are
# no reason to start it again, so this probe does not see them.
livenessProbe:
  httpGet: {{ include "isrwatch.request" (list . .hangs) }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# Readiness: {{ get (dict "collector" "a source reads partition state of its clusters." "job" "every query runs, and the tables have what the bus had a minute ago." "exporter" "it has read the tables.") .port }}
readinessProbe:
  httpGet: {{ include "isrwatch.request" (list . "/-/ready") }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* A request of a probe, on one line. Takes [dict of the probes, path]. */}}
{{- define "isrwatch.request" -}}
{{- $asked := index . 0 -}}
{{- $request := dict "path" (index . 1) "port" $asked.port -}}
{{- if ne $asked.own.probe.scheme "HTTP" -}}
{{- $_ := set $request "scheme" $asked.own.probe.scheme -}}
{{- end -}}
{{- if $asked.own.probe.headers -}}
{{- $_ := set $request "httpHeaders" $asked.own.probe.headers -}}
{{- end -}}
{{ $request | toRawJson }}
{{- end -}}
