"""What every local pool is started with, before the settings of its project; each with its reason."""

# Measured with Spark 4.2.0 and Java 17 on two busy cores, 12 statements: serial collector and C1 alone started the
# server in 9.0 s and used 47 s of CPU; the defaults took 26 s and 84 s, and 200 MB more.
# With C1 alone Java keeps 48 MB for compiled code, which 82 s of a drill filled; then a SparkContext ended with a
# NoSuchMethodException. What is not used is only reserved.
# Java collects all of its heap whenever classes have outgrown a bound that begins at 21 MB: three times while a server
# starts and fills its catalog, 0.5 s of its CPU.
JVM = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m", "-XX:MetaspaceSize=256m",
    "-XX:-UsePerfData", "-Xss1m",
)  # fmt: skip

# An XML document may not name what the pool fetches: xpath() went to any address and file (run on 4.2.0). In a jar lie
# the grammars of libraries.
XML = ("-Djavax.xml.accessExternalDTD=jar:file", "-Djavax.xml.accessExternalSchema=jar:file")

DEFAULTS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "15s",
    "spark.sql.catalogImplementation": "in-memory",
    # Batch readers must see what streams have committed since: with this cache at work they read old listings.
    "spark.sql.filesourceTableRelationCacheSize": "0",
    "spark.cleaner.periodicGC.interval": "10min",
    # A batch of more than 32 new files starts a task for each to list it (seen with 4.2.0: 29,000 tasks before a row).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Classes that Spark has generated, 100 by default for all statements: with 19 on Delta each batch compiled its own
    # anew, 0.38 of the server's CPU (samples of 20 s at rest, 4.2.0).
    "spark.sql.codegen.cache.maxEntries": "5000",
    # By itself Spark asks of each file of a checkpoint whether it is a link, by a process that runs `readlink`: 30 a
    # batch on Delta. This class renames as atomically on a file system, and refuses a second writer of a batch as well.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex{200}
logger.window.name = org.apache.spark.sql.catalyst.optimizer
logger.window.level = error
"""
