"""Metrics: the catalogue, and the rendering of a snapshot as a Prometheus exposition.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``metric``                what a metric is: name, labels, help, unit, how fresh its data must be
- ``text``                  lines of the Prometheus text format
- ``scrape_request``        what one scrape selects
- ``scrape_times``          when the next scrape may come
- ``compression``           gzip in parts: only changed parts are compressed again
- ``headings``              lines above the samples of a metric, in both formats
- ``topics``                metrics of topics
- ``partitions``            metrics of partitions and replicas
- ``brokers``               metrics of brokers
- ``unsettled``             counts of partitions that are not as they should be
- ``cluster_health``  the metric of health
- ``clusters``              metrics of clusters and of their sources
- ``incidents``             metrics of incidents
- ``groups``                metrics of groups and their lag
- ``replicas``              metrics of followers that are behind, of sizes and log directories
- ``quorum``                metrics of the metadata quorum and of transactions
- ``settings``              metrics of settings that are not safe, and of versions
- ``sample_ages``           until which age state and samples are exposed; ages of the newest ones
- ``kafka_exporter_names``  the metrics of kafka_exporter, with its names and labels
- ``mbean``                 a metric that Kafka has as an MBean
- ``jmx_partitions``        the MBeans of partitions and logs
- ``jmx_names``             the metrics of Kafka's own MBeans, with the names of the JMX exporter's Kafka example
- ``exporter_metrics``      metrics of the exporter itself
- ``process_metrics``       metrics of its process
- ``catalogue``             every metric, in the order of the exposition
- ``series_filter``         which series are left out by choice
- ``detail``                which partitions have series of their own
- ``sample_render_cache``   rendered lines of samples, kept until there are newer ones
- ``topic_render_cache``    rendered lines per topic, kept until the topic changes
- ``prepared``              what is rendered of a snapshot before a scrape asks for it
- ``sample_blocks``         lines that are rendered at a scrape, or at every change of a cluster
- ``exposition``            the whole response, put together at a scrape
- ``jmx_exposition``        the response under the names of MBeans
"""
