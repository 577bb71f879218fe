CREATE TABLE order_messages (_content STRING)
USING postgres_changes OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', messages 'order', publication 'restaurant'
);
